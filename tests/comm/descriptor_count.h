// Whether a test leaves file descriptors, shared memory or sockets behind.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace plait::comm::test {

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.is_symlink();
  return count;
}

// Lines of a file of /proc that have `text` in them.
inline int lines_with(const std::string& path, const std::string& text) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(text) != std::string::npos;
  return count;
}

// What there was when a test began is there when it ends, and no more.
class NothingLeftBehind : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(open_descriptors(), descriptors_) << "file descriptors are left open (or closed twice)";
    EXPECT_EQ(lines_with("/proc/self/maps", "plait-mailbox"), 0) << "shared memory is still mapped";
  }

 private:
  std::size_t descriptors_ = open_descriptors();
};

}  // namespace plait::comm::test
