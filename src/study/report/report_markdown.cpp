#include "study/report/report_markdown.h"

#include <string_view>

namespace plait::study {
namespace {

std::string escaped(const std::string& text) {
  constexpr std::string_view markup = "\\`*_[]<>|#&~$";
  std::string result;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      result += ' ';
      continue;
    }
    if (markup.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string table_text(const Table& table) {
  std::string text = "|";
  for (const Column& column : table.columns) text += " " + escaped(column.title) + " |";
  text += "\n|";
  for (const Column& column : table.columns) text += column.is_number ? " ---: |" : " --- |";
  text += "\n";
  for (const std::vector<Cell>& row : table.rows) {
    text += "|";
    for (const Cell& cell : row) text += " " + escaped(cell.text) + (cell.mark == Mark::best ? " (fastest) |" : " |");
    text += "\n";
  }
  return text;
}

}  // namespace

std::string to_markdown(const Report& report) {
  std::string text = "# " + escaped(report.name) + "\n\n" + escaped(report.about) + "\n";
  for (const std::string& sentence : report.sentences) text += "\n" + escaped(sentence) + "\n";
  for (const std::string& note : report.notes) text += "\n- " + escaped(note) + "\n";
  for (const Section& section : report.sections) {
    text += "\n## " + escaped(section.title) + "\n\n";
    if (!section.text.empty()) text += escaped(section.text) + "\n\n";
    text += section.table.rows.empty() ? "Nothing to show.\n" : table_text(section.table);
  }
  return text;
}

}  // namespace plait::study
