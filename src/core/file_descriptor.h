// Owns a file descriptor.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

namespace plait {

class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}  // -1 is none
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }  // the caller closes it
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

// A path by which this process can open the descriptor's file once more.
inline std::string path_of(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

}  // namespace plait
