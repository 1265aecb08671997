#include "checkpoint/checksum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/temporary_directory.h"

namespace plait::checkpoint {
namespace {

class Checksum : public testing::Test {
 protected:
  Checksum() {
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
    File file = File::create(path());
    file.write_at(0, text.data(), text.size());
    file.close();
  }
  std::filesystem::path path() const { return std::filesystem::path(folder.path()) / "bytes"; }

  plait::test::TemporaryDirectory folder;
  std::string text = std::string((std::size_t{3} << 20) + 7, ' ');  // more than one piece of reading
};

TEST_F(Checksum, ManyRangesHashAsEachByItself) {
  const File file = File::open_read(path());
  std::vector<FileRange> ranges = {{&file, 0, text.size()}, {&file, 5, 0}};
  for (std::uint64_t i = 0; i < 100; ++i) ranges.push_back({&file, i * 1000 + i, 17 * i * i});
  const std::vector<std::uint64_t> hashes = xxh3(ranges);
  ASSERT_EQ(hashes.size(), ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i)
    EXPECT_EQ(hashes[i], xxh3(std::string_view(text).substr(ranges[i].offset, ranges[i].bytes))) << i;
  EXPECT_TRUE(xxh3(std::vector<FileRange>{}).empty());
}

TEST_F(Checksum, AFileThatEndsTooSoonIsNamed) {
  const File file = File::open_read(path());
  std::vector<FileRange> ranges(20, {&file, 0, 1000});
  ranges[7] = {&file, text.size() - 10, 11};
  try {
    xxh3(ranges);
    FAIL() << "read behind the end";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(path().string()));
  }
}

}  // namespace
}  // namespace plait::checkpoint
