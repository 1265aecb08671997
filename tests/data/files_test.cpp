#include "data/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "core/config_error.h"
#include "core/error.h"
#include "data/data_files.h"

namespace plait::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Globs : public testing::Test {
 protected:
  Globs() {
    for (const char* name :
         {"b.txt", "a.txt", "a.md", ".hidden.txt", "x/c.txt", "x/y/d.txt", "x/y/z/e.md", ".git/config.txt", "x/.h/f.txt"}) {
      folder_.write(name, "text");
    }
  }
  std::vector<std::string> match(const std::vector<std::string>& globs) const {
    std::vector<std::string> full, names;
    for (const std::string& glob : globs) full.push_back(folder_ / glob);
    for (const MatchedFile& file : match_files(full, "key"))
      names.push_back(std::filesystem::relative(file.path, folder_ / "").string());
    return names;
  }
  DataFolder folder_;
};

TEST_F(Globs, MatchWithinAFolderAndAtAnyDepth) {
  EXPECT_THAT(match({"*.txt"}), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(match({"?.txt"}), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(match({"**"}), ElementsAre("a.md", "a.txt", "b.txt", "x/c.txt", "x/y/d.txt", "x/y/z/e.md"));
  EXPECT_THAT(match({"**/*.md"}), ElementsAre("a.md", "x/y/z/e.md"));
  EXPECT_THAT(match({"x/**/y/**"}), ElementsAre("x/y/d.txt", "x/y/z/e.md"));
  EXPECT_THAT(match({"**/**/d.*"}), ElementsAre("x/y/d.txt"));
  EXPECT_THAT(match({"*/c.txt"}), ElementsAre("x/c.txt"));
  EXPECT_THAT(match({"*a*.*t*"}), ElementsAre("a.txt"));
}

TEST_F(Globs, KeepTheirOrderAndTakeAFileOnce) {
  EXPECT_THAT(match({"b.txt", "*.txt", "./a.txt"}), ElementsAre("b.txt", "a.txt"));
}

TEST_F(Globs, MatchHiddenNamesOnlyWhenAsked) {
  EXPECT_THAT(match({".*.txt"}), ElementsAre(".hidden.txt"));
  EXPECT_THAT(match({".git/*"}), ElementsAre(".git/config.txt"));
}

TEST_F(Globs, FollowLinksToFoldersOneByOneButNotAtAnyDepth) {
  std::filesystem::create_directory_symlink(folder_ / "", folder_ / "x/loop");
  EXPECT_THAT(match({"x/**"}), ElementsAre("x/c.txt", "x/y/d.txt", "x/y/z/e.md"));
  EXPECT_THAT(match({"x/*/a.txt"}), ElementsAre("a.txt")) << "x/loop/a.txt, as it is shown here";
}

// A part of the data that a run would else do without, and nobody would know.
TEST_F(Globs, RefuseWhatTheyLeadToAndCannotSee) {
  const auto refusal = [&](const std::string& glob) { return config_error([&] { match({glob}); }); };
  std::filesystem::create_symlink("nothing.txt", folder_ / "x/y/gone.txt");
  for (const char* glob : {"x/y/*.txt", "x/**", "x/y/gone.txt", "x/*/gone.txt"})
    EXPECT_THAT(refusal(glob),
                AllOf(HasSubstr("key="), HasSubstr("cannot be read"), HasSubstr("x/y/gone.txt: a link to nothing")));
  EXPECT_THAT(match({"*.txt", "x/*.txt", "x/y/d*"}), ElementsAre("a.txt", "b.txt", "x/c.txt", "x/y/d.txt"));
  std::filesystem::create_symlink("circle", folder_ / "circle");
  EXPECT_THAT(refusal("circle/*"), HasSubstr("circle: Too many levels of symbolic links"));
  EXPECT_THAT(refusal("**"), HasSubstr("circle: Too many levels of symbolic links"));
}

TEST_F(Globs, NameWhatIsThereAndIsNoRegularFile) {
  const auto problems = [&](const std::string& glob) {
    try {
      match({glob});
    } catch (const ConfigError& error) {
      return error.problems();
    }
    return std::vector<ConfigProblem>();
  };
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder_ / "to_pipe");
  std::filesystem::create_symlink("/dev/null", folder_ / "device");
  for (const char* name : {"pipe", "to_pipe", "device"}) {
    ASSERT_EQ(problems(name).size(), 1u) << name;
    EXPECT_EQ(problems(name)[0].value, folder_ / name);
    EXPECT_THAT(problems(name)[0].rule, testing::StartsWith("is not a regular file")) << name;
  }
  EXPECT_EQ(problems("p*e").at(0).rule, "matches no file");
  std::filesystem::create_symlink("circle", folder_ / "circle");
  EXPECT_EQ(problems("circle").size(), 1u);
}

TEST_F(Globs, KnowWhetherAWildcardMatched) {
  EXPECT_FALSE(match_files({folder_ / "a.txt"}, "key")[0].by_wildcard);
  EXPECT_TRUE(match_files({folder_ / "a.t*"}, "key")[0].by_wildcard);
}

TEST_F(Globs, ReportEveryGlobThatMatchesNothing) {
  try {
    match({"none.*", "a.txt", "x"});
    FAIL();
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 2u);
    EXPECT_EQ(error.problems()[0].path, "key");
    EXPECT_EQ(error.problems()[0].rule, "matches no file");
    EXPECT_THAT(error.problems()[1].rule, testing::HasSubstr("is a directory"));
  }
}

std::string read(const DataFile& file, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, ' ');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(DataFiles, ReadWhatIsThere) {
  const DataFolder folder;
  EXPECT_EQ(DataFile(folder.write("a", "hello")).text(), "hello");
  EXPECT_EQ(read(DataFile(folder / "a"), 1, 3), "ell");
  EXPECT_TRUE(DataFile(folder.write("b", "")).text().empty());
  EXPECT_THAT(config_error([&] { DataFile(folder / "missing"); }), testing::HasSubstr("missing: cannot be opened: No such"));
  EXPECT_THROW(DataFile(folder / ""), ConfigError) << "a directory";
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(DataFile(folder / "pipe"), ConfigError) << "and does not wait for a writer";
}

TEST(DataFiles, ThatGetShorterAreNamed) {
  const DataFolder folder;
  const std::string path = folder.write("text.txt", some_text(100'000));
  DataFile file(path);
  std::filesystem::resize_file(path, 50'000);
  EXPECT_EQ(file.size(), 100'000u);
  EXPECT_EQ(read(file, 0, 50'000), some_text(100'000).substr(0, 50'000)) << "what is left";
  for (const bool kept_open : {true, false}) {
    if (!kept_open) file.let_go();
    EXPECT_THAT(config_error([&] { read(file, 49'990, 20); }),
                AllOf(HasSubstr(path), HasSubstr("ends at byte 50000, 10 bytes early"),
                      HasSubstr("it had 100000 bytes when it was opened, and has become shorter since: put back")));
    EXPECT_THAT(config_error([&] { read(file, 99'990, 10); }), HasSubstr("ends at byte 50000, 50000 bytes early"));
  }
}

TEST(DataFiles, LetGoAreOpenedAgainUnlessTheyAreOthers) {
  const DataFolder folder;
  const std::string path = folder.write("a", "hello");
  DataFile file(path);
  file.let_go();
  EXPECT_EQ(read(file, 1, 3), "ell");
  std::filesystem::rename(folder.write("b", "jelly"), path);
  EXPECT_THAT(config_error([&] { read(file, 1, 3); }), testing::HasSubstr(path + ": is not the file any more"));
}

TEST(TextReaders, ShowAtLeastWhatIsAskedFor) {
  const DataFolder folder;
  const std::string text = some_text(3'000'000);
  const DataFile file(folder.write("a", text));
  for (const std::size_t ask : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20, std::size_t{5} << 20}) {
    TextReader reader(file);
    std::string all;
    for (std::string_view next; !(next = reader.peek(ask)).empty();) {
      ASSERT_GE(next.size(), std::min(ask, text.size() - all.size()));
      const std::size_t taken = std::min(next.size(), ask * 2 / 3 + 1);
      all += next.substr(0, taken);
      reader.skip(taken);
    }
    EXPECT_EQ(all, text) << ask;
  }
}

TEST(DataFiles, InvalidTextIsFoundWhereverItIs) {
  const DataFolder folder;
  const std::string character = "\xe2\x82\xac";  // across the ends of what is read at a time
  std::string text;
  while (text.size() < 2'500'000) text += character;
  EXPECT_EQ(find_invalid_utf8(DataFile(folder.write("good", text))), std::nullopt);
  for (const std::size_t at : {std::size_t{0}, (std::size_t{1} << 20) - 1, std::size_t{1} << 20, text.size() - 3}) {
    std::string bad = text;
    bad[at / 3 * 3] = '\xff';
    EXPECT_EQ(find_invalid_utf8(DataFile(folder.write("bad", bad))), at / 3 * 3);
  }
  EXPECT_EQ(find_invalid_utf8(DataFile(folder.write("cut", text.substr(0, 5)))), 3u);
}

}  // namespace
}  // namespace plait::data
