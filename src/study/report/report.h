// A study's report, as data: computed from a StudyData, written out by writers.h, which adds nothing to it.
//
// Every chart has a table with the same values beneath it, for readers who cannot see it and for paper. Every point of the
// study is in the section "points" with its state and, unless that is ok, the reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/names.h"
#include "core/statistics.h"
#include "study/rows.h"
#include "study/study_data.h"

namespace plait::study {

// The meaning of a cell in a map of the study.
enum class Mark { none, measured, best, does_not_fit, not_measured, failed };

struct Cell {
  std::string text;
  Mark mark = Mark::none;
  double level = 0;  // of Mark::measured and Mark::best: 0 (slowest) to 1 (fastest)
};

struct Column {
  std::string title;
  bool is_number = false;
};

struct Table {
  std::vector<Column> columns = {};
  std::vector<std::vector<Cell>> rows = {};  // each as long as `columns`
};

// The look of a series, which shows the kind of its values.
enum class Look {
  measured,   // a line with error bars
  others,     // faint dots: measured, but not the best
  ideal,      // a thin dashed line
  limit,      // a line that must not be crossed
  simulated,  // dashed, with its intervals as a band
  dots,       // dots without a line
  bars,       // only if there are Chart::categories
};

struct ChartValue {
  double x = 0;  // if the chart has categories: the index of one
  double y = 0;
  std::optional<Interval> interval;  // of y
  std::string label;
};

struct Series {
  std::string name;
  Look look = Look::measured;
  std::vector<ChartValue> values = {};
};

struct Axis {
  std::string title;
  bool is_logarithmic = false;
};

struct Chart {
  std::string description;                   // in words, for readers who cannot see it
  Axis x = {}, y = {};                       // with categories, x is the axis of the values
  std::vector<std::string> categories = {};  // if not empty: horizontal bars, one row each
  bool is_stacked = false;
  std::vector<Series> series = {};
};

struct Section {
  std::string id;  // "throughput"
  std::string title;
  std::string text = {};  // how to read it, and what it leaves out
  std::optional<Chart> chart = {};
  Table table = {};
};

struct Report {
  std::string name;                    // of the study
  std::string about;                   // a line: kind, time and place of the study
  std::vector<std::string> sentences;  // three: the best layout (or size), its limit, and a change that would help
  std::vector<std::string> notes;      // broken bounds, and shortcomings of the study
  std::vector<Section> sections;
  const Section* find(const std::string& id) const;  // null if there is none
};

Report make_report(const StudyData& data);

// Writes report.html, report.md, report.json, points.csv, rounds.csv and, if something was simulated, simulated.csv into
// `folder`, each in one piece; returns their paths, the page first.
std::vector<std::filesystem::path> write_report(const StudyData& data, const std::filesystem::path& folder);

}  // namespace plait::study

namespace plait {
template <>
inline constexpr auto names<study::Mark> = std::to_array<Name<study::Mark>>({{study::Mark::none, "none"},
                                                                             {study::Mark::measured, "measured"},
                                                                             {study::Mark::best, "best"},
                                                                             {study::Mark::does_not_fit, "does-not-fit"},
                                                                             {study::Mark::not_measured, "not-measured"},
                                                                             {study::Mark::failed, "failed"}});
template <>
inline constexpr auto names<study::Look> = std::to_array<Name<study::Look>>({{study::Look::measured, "measured"},
                                                                             {study::Look::others, "others"},
                                                                             {study::Look::ideal, "ideal"},
                                                                             {study::Look::limit, "limit"},
                                                                             {study::Look::simulated, "simulated"},
                                                                             {study::Look::dots, "dots"},
                                                                             {study::Look::bars, "bars"}});
}  // namespace plait
