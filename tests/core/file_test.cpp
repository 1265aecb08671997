// Files that the user names.
#include "core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/error_of.h"
#include "core/temporary_directory.h"

namespace plait {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OutputFile : public testing::Test {
 protected:
  fs::path at(const char* name) const { return fs::path(folder_.path()) / name; }
  static std::string text_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  const test::TemporaryDirectory folder_;
};

TEST_F(OutputFile, IsMadeOrReplacedAtTheEndOfLinks) {
  write_output(at("new"), "one");
  EXPECT_EQ(text_of(at("new")), "one");
  fs::create_directory(at("folder"));
  std::ofstream(at("folder") / "real") << "old";
  fs::create_symlink("folder/real", at("link"));
  fs::create_symlink("link", at("second"));
  write_output(at("second"), "two");
  EXPECT_EQ(text_of(at("folder") / "real"), "two");
  EXPECT_TRUE(fs::is_symlink(at("second")) && fs::is_symlink(at("link")));
  fs::create_symlink("not-yet", at("dangling"));
  write_output(at("dangling"), "three");
  EXPECT_EQ(text_of(at("not-yet")), "three");
  EXPECT_EQ(output_file(at("second")), at("folder/real"));
}

TEST_F(OutputFile, MayBeAPipeOrADevice) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const std::string much(200'000, 'x');
  std::string got;
  {
    const std::jthread reader([&] { got = text_of(at("pipe")); });
    write_output(at("pipe"), much);
  }
  EXPECT_EQ(got, much);
  EXPECT_TRUE(fs::is_fifo(at("pipe"))) << "still there";
  fs::create_symlink("/dev/null", at("nothing"));
  write_output(at("nothing"), "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null") && fs::is_symlink(at("nothing")));
  EXPECT_THAT(error_of<Error>([] { write_output("/dev/full", "text"); }), HasSubstr("cannot write /dev/full: No space"));
}

// What a killed process has left.
TEST_F(OutputFile, ThatIsThereAlreadyHasARemedy) {
  std::ofstream(at("x.part")) << "half";
  EXPECT_THAT(error_of<ConfigError>([&] { File::create(at("x.part")); }),
              HasSubstr("x.part: File exists; remove it, if nothing is writing it"));
}

TEST_F(OutputFile, ThatCannotBeReplacedIsAnError) {
  EXPECT_THAT(error_of<ConfigError>([] { output_file("/dev/null"); }), HasSubstr("cannot write /dev/null: not a regular file"));
  fs::create_symlink("circle", at("circle"));
  EXPECT_THAT(error_of<ConfigError>([&] { write_output(at("circle"), "text"); }), HasSubstr("follow the links of"));
  EXPECT_THAT(error_of<ConfigError>([&] { write_output(folder_.path(), "text"); }), HasSubstr("Is a directory"));
}

// A full file system: what was there stays, and nothing else does.
TEST_F(OutputFile, ThatCannotBeWrittenLeavesTheOneBefore) {
  write_output(at("x"), "before");
  rlimit unlimited{};
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit limit{.rlim_cur = 100, .rlim_max = unlimited.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const std::string problem = error_of<Error>([&] { write_output(at("x"), std::string(1000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(problem, HasSubstr("File too large"));
  EXPECT_EQ(text_of(at("x")), "before");
  EXPECT_FALSE(fs::exists(at("x.tmp")));
}

TEST_F(OutputFile, IsTriedBeforeTheWorkForIt) {
  require_writable(at("new"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  write_output(at("x"), "before");
  require_writable(at("x"));
  EXPECT_EQ(text_of(at("x")), "before");
  require_writable("/dev/null");
  EXPECT_THAT(error_of<ConfigError>([&] { require_writable(at("none") / "x"); }), HasSubstr("No such file or directory"));
}

using InputFile = OutputFile;

TEST_F(InputFile, MayBeAPipeWhichIsReadToItsEnd) {
  const std::string much(200'000, 'x');
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const FileDescriptor to_read(ends[0]);
  {
    const std::jthread writer([&, to_write = FileDescriptor(ends[1])] {
      for (std::size_t n = 0; n < much.size(); n += 50'000) {
        EXPECT_EQ(::write(to_write.get(), much.data() + n, 50'000), 50'000);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the reader has all there is, and waits
      }
    });
    EXPECT_EQ(read_input("/dev/fd/" + std::to_string(to_read.get()), much.size()), much);
  }
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::ofstream(at("file")) << "text";
  EXPECT_EQ(read_input(at("file"), 4), "text");
  EXPECT_EQ(read_input("/dev/null", 4), "");
  EXPECT_THAT(error_of<ConfigError>([] { read_input("/dev/zero", 4); }), HasSubstr("more than the 4 such a file can have"));
  EXPECT_THAT(error_of<ConfigError>([&] { read_input(at("pipe"), 4); }), HasSubstr("a pipe that nothing writes to"));
  EXPECT_THAT(error_of<ConfigError>([&] { read_input(folder_.path(), 4); }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace plait
