#include "data/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/error.h"
#include "data/data_files.h"

namespace plait::data {
namespace {

using testing::ElementsAre;

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

TEST_F(Globs, DoNotFollowLinksToFolders) {
  std::filesystem::create_directory_symlink(folder_ / "", folder_ / "x/loop");
  EXPECT_THAT(match({"x/**"}), ElementsAre("x/c.txt", "x/y/d.txt", "x/y/z/e.md"));
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

TEST(MappedFiles, ReadWhatIsThere) {
  const DataFolder folder;
  EXPECT_EQ(MappedFile(folder.write("a", "hello")).text(), "hello");
  EXPECT_TRUE(MappedFile(folder.write("b", "")).text().empty());
  EXPECT_THROW(MappedFile(folder / "missing"), ConfigError);
  EXPECT_THROW(MappedFile(folder / ""), ConfigError) << "a directory";
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(folder / "pipe"), ConfigError) << "and does not wait for a writer";
}

}  // namespace
}  // namespace plait::data
