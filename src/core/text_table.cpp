#include "core/text_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/terminal.h"

namespace plait {
namespace {

constexpr int gap = 2;          // between columns
constexpr int indent = 4;       // of a row's continuation lines
constexpr int least_text = 28;  // of a last column with broken text

int longest_word(std::string_view text) {
  int longest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    longest = std::max(longest, display_width(text.substr(at, end - at)));
    at = end + 1;
  }
  return longest;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    if (end == std::string::npos) return lines;
    at = end + 1;
  }
}

std::string aligned(const std::string& text, int width, Align align) {
  const std::string spaces(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ');
  return align == Align::right ? spaces + text : text + spaces;
}

}  // namespace

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)), cell_widths_(columns_.size(), 0) {
  require(!columns_.empty(), "TextTable: at least one column");
  for (const Column& column : columns_) title_words_.push_back(longest_word(column.title));
}

void TextTable::measure(const std::vector<std::string>& cells) {
  require(cells.size() <= columns_.size(), "TextTable: more cells than columns");
  for (std::size_t c = 0; c < cells.size(); ++c) cell_widths_[c] = std::max(cell_widths_[c], display_width(cells[c]));
}

void TextTable::add(std::vector<std::string> cells) {
  measure(cells);
  rows_.push_back(std::move(cells));
}

std::vector<TextTable::Place> TextTable::places(int width) const {
  const std::size_t count = columns_.size();
  const bool ends_with_text = columns_.back().align == Align::left;
  std::vector<Place> places(count);
  const auto fits_with = [&](auto width_of) {
    int at = 0;
    for (std::size_t c = 0; c < count; ++c) {
      places[c] = {0, at, width_of(c)};
      at += places[c].width + gap;
    }
    return at - gap <= width;
  };
  const auto with_titles = [&](std::size_t c) { return std::max(display_width(columns_[c].title), cell_widths_[c]); };
  const auto with_words = [&](std::size_t c) { return std::max(title_words_[c], cell_widths_[c]); };
  if (fits_with(with_titles) || fits_with(with_words)) return places;
  if (ends_with_text && width - places.back().at >= least_text) {
    places.back().width = width - places.back().at;
    return places;
  }
  int line = 0, at = 0;
  for (std::size_t c = 0; c < count;) {
    std::size_t end = c + 1;  // of the columns that stay together
    while (end < count && columns_[end].joined) ++end;
    const auto width_of = [&](auto width_of_column) {
      int all = -gap;
      for (std::size_t k = c; k < end; ++k) all += gap + width_of_column(k);
      return all;
    };
    const int titled = width_of(with_titles), narrow = width_of(with_words);
    if (at > 0 && at + narrow > width) {
      ++line;
      at = indent;
    }
    const bool breaks_titles = at + titled > width, breaks_apart = at + narrow > width;
    for (; c < end; ++c) {
      const int needed = breaks_titles ? with_words(c) : with_titles(c);
      if (breaks_apart && at > indent && at + needed > width) {
        ++line;
        at = indent;
      }
      const bool breaks = ends_with_text && c + 1 == count;
      places[c] = {line, at, breaks ? std::min(needed, width - at) : needed};
      at += places[c].width + gap;
    }
  }
  return places;
}

std::string TextTable::lines_of(const std::vector<std::string>& cells, const std::vector<Place>& places, int width) const {
  std::string text;
  for (std::size_t first = 0; first < cells.size();) {
    std::size_t end = first;
    while (end < cells.size() && places[end].line == places[first].line) ++end;
    // The parts of a broken cell stand below each other.
    std::vector<std::vector<std::string>> parts;
    std::size_t height = 1;
    for (std::size_t c = first; c < end; ++c) {
      const bool is_narrow = display_width(cells[c]) > places[c].width;
      // The rest of the line, if no cell follows one that is wider than measured.
      const int room = c + 1 == columns_.size() ? std::max(places[c].width, width - places[c].at) : places[c].width;
      parts.push_back(is_narrow ? split_lines(folded(cells[c], room)) : std::vector{cells[c]});
      height = std::max(height, parts.back().size());
    }
    for (std::size_t part = 0; part < height; ++part) {
      std::string line;
      for (std::size_t c = first; c < end; ++c) {
        const std::vector<std::string>& of_cell = parts[c - first];
        const std::string shown = part < of_cell.size() ? of_cell[part] : "";
        const int behind = places[c].at - display_width(line);
        line += std::string(static_cast<std::size_t>(std::max(behind, c == first ? 0 : 1)), ' ') +
                aligned(shown, places[c].width, columns_[c].align);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      if (line.empty() && first > 0) continue;  // skip empty continuation lines
      text += line + '\n';
    }
    first = end;
  }
  return text;
}

std::string TextTable::heading(int width) const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  return lines_of(titles, places(width), width);
}

std::string TextTable::row(const std::vector<std::string>& cells, int width) const {
  require(cells.size() <= columns_.size(), "TextTable: more cells than columns");
  return lines_of(cells, places(width), width);
}

std::string TextTable::text(int width) const {
  std::string text = heading(width);
  for (const auto& cells : rows_) text += row(cells, width);
  return text;
}

}  // namespace plait
