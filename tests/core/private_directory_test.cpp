#include "core/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "child_process.h"
#include "core/temporary_directory.h"
#include "environment_variable.h"

namespace plait::test {
namespace {

namespace fs = std::filesystem;

const ChildProcess dies("PrivateDirectoryDies", [] {
  const PrivateDirectory directory;
  std::ofstream(directory.path() / "file") << "what it was working on";
  ::raise(SIGKILL);
});

void make_old(const fs::path& path) { fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1)); }

TEST(PrivateDirectory, IsForItsUserAloneAndGoesWithTheObject) {
  fs::path path;
  {
    const PrivateDirectory directory;
    path = directory.path();
    struct stat status{};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U);
    std::ofstream(path / "file") << "text";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(PrivateDirectory, RemovesWhatKilledProcessesLeftAndNothingElse) {
  const TemporaryDirectory folder;
  const EnvironmentVariable variable("TMPDIR", folder.path());
  const fs::path others = fs::path(folder.path()) / "plait-temporary-notes";
  fs::create_directory(others);
  make_old(others);
  const PrivateDirectory alive;
  make_old(alive.path());
  EXPECT_TRUE(was_killed_by(run_child(dies), SIGKILL));
  fs::path left;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    if (entry.path() != alive.path() && entry.path() != others) left = entry.path();
  ASSERT_TRUE(fs::exists(left / "file"));
  {
    const PrivateDirectory soon;
  }
  EXPECT_TRUE(fs::exists(left)) << "its maker might be about to lock it";
  make_old(left);
  {
    const PrivateDirectory later;
  }
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(alive.path()) && fs::exists(others));
}

}  // namespace
}  // namespace plait::test
