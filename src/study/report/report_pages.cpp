#include "study/report/writers.h"

#include <spdlog/fmt/fmt.h>

#include <kainjow/mustache.hpp>
#include <string_view>

#include "core/error.h"
#include "study/report/resources.h"

namespace plait::study {
namespace {

namespace mustache = kainjow::mustache;

// JSON for a script element: characters that could end the element or begin a comment are written as JSON escapes.
std::string script_json(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '<': escaped += "\\u003c"; break;
      case '>': escaped += "\\u003e"; break;
      case '&': escaped += "\\u0026"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

mustache::data text_list(const std::vector<std::string>& texts) {
  mustache::data list{mustache::data::type::list};
  for (const std::string& text : texts) list << mustache::data{"text", text};
  return list;
}

mustache::data table_data(const Table& table) {
  mustache::data columns{mustache::data::type::list}, rows{mustache::data::type::list};
  for (const Column& column : table.columns) {
    mustache::data entry;
    entry["title"] = column.title;
    entry["kind"] = column.is_number ? "number" : "words";
    columns << entry;
  }
  for (const std::vector<Cell>& row : table.rows) {
    require(row.size() == table.columns.size(), "a report's table has a row of another length");
    mustache::data cells{mustache::data::type::list};
    for (std::size_t n = 0; n < row.size(); ++n) {
      mustache::data entry;
      entry["text"] = row[n].text;
      entry["kind"] = fmt::format("{} {}", table.columns[n].is_number ? "number" : "words", to_string(row[n].mark));
      const bool has_level = row[n].mark == Mark::measured || row[n].mark == Mark::best;
      if (has_level) entry["level"] = fmt::format("{:.3f}", row[n].level);
      cells << entry;
    }
    mustache::data line;
    line["cells"] = std::move(cells);
    rows << line;
  }
  mustache::data data;
  data["columns"] = std::move(columns);
  data["rows"] = std::move(rows);
  return data;
}

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

std::string to_html(const Report& report) {
  nlohmann::ordered_json charts = nlohmann::ordered_json::object();
  mustache::data sections{mustache::data::type::list};
  for (const Section& section : report.sections) {
    mustache::data entry;
    entry["id"] = section.id;
    entry["title"] = section.title;
    if (!section.text.empty()) entry["text"] = section.text;
    if (section.chart) {
      charts[section.id] = chart_json(*section.chart);
      mustache::data chart;
      chart["description"] = section.chart->description;
      chart["size"] = section.chart->categories.empty() ? "" : fmt::format("--bars: {}", section.chart->categories.size());
      entry["chart"] = std::move(chart);
    }
    if (section.table.rows.empty()) {
      entry["nothing"] = true;
    } else {
      entry[section.chart ? "folded" : "open"] = table_data(section.table);
    }
    sections << entry;
  }
  mustache::data page;
  page["name"] = report.name;
  page["about"] = report.about;
  page["sentences"] = text_list(report.sentences);
  page["has_notes"] = !report.notes.empty();
  page["notes"] = text_list(report.notes);
  page["sections"] = std::move(sections);
  page["style"] = std::string(resources::page_css);
  page["script"] = std::string(resources::page_js);
  page["charts_script"] = std::string(resources::chart_min_js);
  page["charts_licence"] = std::string(resources::chart_licence);
  page["charts"] = script_json(charts);
  mustache::mustache whole{std::string(resources::page_mustache)};
  require(whole.is_valid(), "the report's template: " + whole.error_message());
  // Names that a template refers to with a leading > are themselves templates.
  const mustache::partial table{[] { return std::string(resources::table_mustache); }};
  page["table"] = mustache::data{table};
  std::string text = whole.render(page);
  require(whole.is_valid(), "the report's template: " + whole.error_message());
  return text;
}

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
