#include "core/text_table.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <memory>

#include "core/terminal.h"
#include "environment_variable.h"

namespace plait {
namespace {

using testing::Each;
using testing::Le;
using testing::ResultOf;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TextTable links() {
  TextTable table({{"link", Align::left}, {"messages one way"}, {"rate"}, {"why", Align::left}});
  table.add({"0 -> 1", "12", "3.5 GB/s", "peer access, as both GPUs are below one switch of the host and may"});
  table.add({"1 -> 0", "1234", "13.5 GB/s"});
  return table;
}

TEST(TextTable, StaysInOneLineWhereThereIsRoom) {
  EXPECT_EQ(links().text(200),
            "link    messages one way       rate  why\n"
            "0 -> 1                12   3.5 GB/s  peer access, as both GPUs are below one switch of the host and may\n"
            "1 -> 0              1234  13.5 GB/s\n");
}

TEST(TextTable, BreaksTitlesFirstAndThenTheLastText) {
  EXPECT_EQ(links().text(97),
            "link    messages       rate  why\n"
            "         one way\n"
            "0 -> 1        12   3.5 GB/s  peer access, as both GPUs are below one switch of the host and may\n"
            "1 -> 0      1234  13.5 GB/s\n");
  EXPECT_EQ(links().text(60),
            "link    messages       rate  why\n"
            "         one way\n"
            "0 -> 1        12   3.5 GB/s  peer access, as both GPUs are\n"
            "                             below one switch of the host\n"
            "                             and may\n"
            "1 -> 0      1234  13.5 GB/s\n");
}

TEST(TextTable, PutsTheRestOfARowBelowIt) {
  EXPECT_EQ(links().text(30),
            "link    messages one way\n"
            "         rate\n"
            "    why\n"
            "0 -> 1                12\n"
            "     3.5 GB/s\n"
            "    peer access, as both GPUs\n"
            "    are below one switch of\n"
            "    the host and may\n"
            "1 -> 0              1234\n"
            "    13.5 GB/s\n");
}

TEST(TextTable, FitsWhateverTheWidth) {
  for (int width = 20; width < 130; ++width)
    EXPECT_THAT(lines_of(links().text(width)),
                Each(ResultOf([](const std::string& l) { return display_width(l); }, Le(width))));
}

TEST(TextTable, RowsCanComeOneByOne) {
  TextTable table({{"layout", Align::left}, {"error"}});
  table.measure({"tensor=2 pipeline=2", ""});
  EXPECT_EQ(table.heading(80), "layout               error\n");
  EXPECT_EQ(table.row({"serial", "\x1b[32m0\x1b[0m"}, 80), "serial                   \x1b[32m0\x1b[0m\n");
}

TEST(TextTable, KeepsJoinedColumnsOnALine) {
  TextTable table({{"name", Align::left}, {"a"}, {"b", Align::right, true}, {"c", Align::right, true}});
  table.add({"0123456789", "1234", "5678", "9"});
  EXPECT_EQ(table.text(24), "name\n       a     b  c\n0123456789\n    1234  5678  9\n");
  EXPECT_EQ(table.text(25), "name           a     b  c\n0123456789  1234  5678  9\n");
}

TEST(TextTable, LeavesOutLinesOfARowThatNothingStandsOn) {
  TextTable table({{"name", Align::left}, {"a"}, {"b"}});
  table.add({"0123456789", "1234", "5678"});
  table.add({"x", "", "9"});
  EXPECT_EQ(table.text(12), "name\n       a\n       b\n0123456789\n    1234\n    5678\nx\n       9\n");
}

TEST(Terminal, CountsCharactersAndNoColours) {
  EXPECT_EQ(display_width("\x1b[1;31m━━\x1b[0m %"), 4);
  EXPECT_EQ(display_width(""), 0);
}

TEST(Terminal, FoldsAtSpaces) {
  EXPECT_EQ(folded("one two three", 7), "one two\nthree");
  EXPECT_EQ(folded("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(folded("  a bb\nccc dddddddddd e", 6, 4), "  a bb\nccc\n    dddddddddd\n    e");
  EXPECT_EQ(folded("two  spaces", 80), "two  spaces");
}

TEST(Terminal, ShortensAtAWordWithAMark) {
  EXPECT_EQ(shortened("one two three", 13, true), "one two three");
  EXPECT_EQ(shortened("one two three", 12, true), "one two…");
  EXPECT_EQ(shortened("one two three", 8, true), "one two…");
  EXPECT_EQ(shortened("one two three", 9, false), "one...");
  EXPECT_EQ(shortened("abcdefgh", 5, false), "ab...");
  EXPECT_EQ(shortened("ééééé", 3, true), "éé…");
}

TEST(Terminal, OfNoTerminalIsAsWideAsColumnsSays) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  const auto width_with = [&](const char* columns) {
    const test::EnvironmentVariable variable("COLUMNS", columns);
    return terminal_width(file.get());
  };
  EXPECT_EQ(width_with("120"), 120);
  for (const char* wrong : {"", "0", "-5", "7", "wide", "120x", "99999999999999999999"})
    EXPECT_EQ(width_with(wrong), 80) << wrong;
}

}  // namespace
}  // namespace plait
