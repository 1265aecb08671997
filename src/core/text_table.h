// Text tables that fit a terminal.
#pragma once

#include <string>
#include <vector>

namespace plait {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
  bool joined = false;  // kept on one line with the column before it, if both fit
};

// If a table is wider than its terminal, titles are broken between words first, then the text of a left-aligned last column,
// and then each row takes more than one line, all but the first indented.
class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns);

  // A row of all columns, or of the first ones.
  void add(std::vector<std::string> cells);
  // Heading and rows, for lines of up to `width` columns; ends with a newline.
  std::string text(int width) const;

  // For rows that come one by one: first measure() the cells that columns must be wide enough for, then heading() and row()s.
  void measure(const std::vector<std::string>& cells);
  std::string heading(int width) const;
  std::string row(const std::vector<std::string>& cells, int width) const;

 private:
  struct Place {
    int line = 0, at = 0, width = 0;  // for a column
  };
  std::vector<Place> places(int width) const;
  std::string lines_of(const std::vector<std::string>& cells, const std::vector<Place>& places, int width) const;

  std::vector<Column> columns_;
  std::vector<int> title_words_;  // columns of the longest word
  std::vector<int> cell_widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace plait
