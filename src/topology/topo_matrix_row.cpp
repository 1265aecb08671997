#include "topology/topo_matrix.h"

#include <algorithm>
#include <charconv>

#include "topology/graph.h"
#include "topology/machine.h"

namespace plait::topology {
namespace {

constexpr std::string_view blanks = " \t";
constexpr std::string_view digits = "0123456789";

std::string_view without_blanks_around(std::string_view text) {
  const auto first = text.find_first_not_of(blanks), last = text.find_last_not_of(blanks);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
}

std::vector<std::string_view> words_in(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t i = text.find_first_not_of(blanks); i != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(blanks, i), text.size());
    words.push_back(text.substr(i, end - i));
    i = text.find_first_not_of(blanks, end);
  }
  return words;
}

struct Label {
  std::size_t length = 0;
  MatrixCell cell;
};

// The labels that a text can start with: more than one only for lanes, as digits may belong to the next cell.
std::vector<Label> labels_at(std::string_view text) {
  static constexpr std::pair<std::string_view, PcieLevel> paths[] = {
      {"X", PcieLevel::same},  {"PIX", PcieLevel::pix},   {"PSB", PcieLevel::pix}, {"PXB", PcieLevel::pxb},
      {"PHB", PcieLevel::phb}, {"NODE", PcieLevel::node}, {"SYS", PcieLevel::sys}, {"SOC", PcieLevel::sys}};
  for (const auto& [label, level] : paths) {
    if (text.starts_with(label)) return {{label.size(), {0, level}}};
  }
  std::vector<Label> found;
  if (!text.starts_with("NV")) return found;
  int lanes = 0;
  for (std::size_t i = 2; i < text.size() && digits.find(text[i]) != std::string_view::npos; ++i) {
    lanes = lanes * 10 + (text[i] - '0');
    if (lanes < 1 || lanes > max_lanes) break;
    found.insert(found.begin(), {i + 1, {lanes, PcieLevel::unknown}});
  }
  if (!found.empty() && found.front().length == text.size()) found.resize(1);  // nothing ran into it
  return found;
}

// "31", and neither "031" nor "".
bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of(digits) == std::string_view::npos &&
         (text.size() == 1 || text.front() != '0');
}

// True for a list as the kernel writes it: numbers and ranges in ascending order.
bool is_cpu_list(std::string_view text) {
  if (count_cpus(text) == 0) return false;
  int before = -1;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find_first_of("-,", i), text.size());
    if (!is_number(text.substr(i, end - i))) return false;
    int value = 0;
    std::from_chars(text.data() + i, text.data() + end, value);
    if (value <= before) return false;
    before = value;
    i = end + 1;
  }
  return true;
}

// `glued`: the columns of the text ran together; then each must hold what nearly all machines print: N/A for a GPU's own NUMA
// node, and one node for NUMA affinity.
bool fits(std::string_view text, AffinityColumn column, bool glued) {
  if (text == "N/A") return true;
  switch (column) {
    case AffinityColumn::cpus: return is_cpu_list(text);
    case AffinityColumn::numa: return is_number(text) || (!glued && is_cpu_list(text));
    case AffinityColumn::gpu_numa: return !glued && is_number(text);
  }
  return false;
}

class RowReader {
 public:
  RowReader(std::string_view line, const MatrixHeading& heading) : line_(line), heading_(heading), words_(words_in(line)) {
    for (std::size_t i = 0; i < heading.affinity.size(); ++i) {
      if (heading.affinity[i] != AffinityColumn::gpu_numa) used_ = i + 1;
    }
  }

  RowReadings read() {
    if (words_.empty()) return {};
    for (std::size_t device = 0; device < heading_.devices.size(); ++device) {
      const std::string& name = heading_.devices[device];
      if (!words_[0].starts_with(name)) continue;
      const bool whole = words_[0].size() == name.size();
      if (!whole && labels_at(words_[0].substr(name.size())).empty()) continue;
      found_.is_row = true;
      row_ = {};
      row_.device = device;
      read_cells(whole ? 1 : 0, whole ? 0 : name.size());
    }
    return std::move(found_);
  }

 private:
  void read_cells(std::size_t word, std::size_t offset) {
    if (row_.cells.size() == heading_.devices.size()) return read_affinity(word, offset);
    if (row_.cells.size() >= found_.cells) {
      found_.cells = row_.cells.size();
      found_.stuck_at = word < words_.size() ? std::string(words_[word]) : "";
    }
    if (word == words_.size()) return;
    for (const Label& label : labels_at(words_[word].substr(offset))) {
      const std::size_t end = offset + label.length;
      row_.cells.push_back(label.cell);
      row_.last_cell = words_[word].substr(offset, label.length);
      const bool whole = end == words_[word].size();
      read_cells(whole ? word + 1 : word, whole ? 0 : end);
      row_.cells.pop_back();
    }
  }

  // Reads the text after the cells: from the middle of a word, or from a word on.
  void read_affinity(std::size_t word, std::size_t offset) {
    const bool glued = offset > 0;
    const std::string_view before = words_[glued ? word : word - 1];
    const std::string_view rest =
        line_.substr(static_cast<std::size_t>(before.data() - line_.data()) + (glued ? offset : before.size()));
    const std::vector<std::string_view> fields = words_in(rest), between_tabs = glued ? fields : fields_between_tabs(rest);
    const std::size_t columns = heading_.affinity.size(), others = found_.readings.size();
    found_.cells = row_.cells.size();
    if (glued && columns == 0) return stop_at(word);
    if (fill(between_tabs)) return keep(between_tabs);
    if (!fill(fields) && !between_tabs.empty() && fit(between_tabs)) return keep(between_tabs);
    if (fit(fields)) keep(fields);
    std::vector<std::string_view> pieces;
    if (columns > fields.size()) split(fields, 0, columns, pieces);
    const bool all_filled = found_.readings.size() > others + (fit(fields) ? 1 : 0);
    if (!all_filled && used_ < columns && used_ > fields.size()) split(fields, 0, used_, pieces);
    if (found_.readings.size() > others) return;
    if (glued) return stop_at(word);
    keep(fields);  // text that is no affinity does not count
  }

  void stop_at(std::size_t word) { found_.stuck_at = std::string(words_[word]); }

  // True if each field is a possible value of its column, and no needed one is missing.
  bool fit(const std::vector<std::string_view>& fields) const {
    for (std::size_t i = 0; i < std::min(fields.size(), heading_.affinity.size()); ++i) {
      if (!fields[i].empty() && !fits(fields[i], heading_.affinity[i], false)) return false;
    }
    return true;
  }
  bool fill(const std::vector<std::string_view>& fields) const {
    return fields.size() >= heading_.affinity.size() && fit(fields) &&
           std::none_of(fields.begin(), fields.begin() + static_cast<std::ptrdiff_t>(used_),
                        [](std::string_view field) { return field.empty(); });
  }

  // Tabs show which columns are empty. Returns none if there are no tabs.
  static std::vector<std::string_view> fields_between_tabs(std::string_view rest) {
    std::vector<std::string_view> fields;
    const std::size_t tab = rest.find('\t');
    if (tab == std::string_view::npos) return fields;
    if (tab < rest.find_first_not_of(blanks)) rest.remove_prefix(tab + 1);
    for (std::size_t i = 0; i <= rest.size();) {
      const std::size_t end = std::min(rest.find('\t', i), rest.size());
      fields.push_back(without_blanks_around(rest.substr(i, end - i)));
      i = end + 1;
    }
    return fields;
  }

  // All ways to cut the fields into `filled` columns.
  void split(const std::vector<std::string_view>& fields, std::size_t field, std::size_t filled,
             std::vector<std::string_view>& pieces) {
    if (field == fields.size()) {
      if (pieces.size() == filled) keep(pieces);
      return;
    }
    cut(fields, field, 0, filled, pieces);
  }

  void cut(const std::vector<std::string_view>& fields, std::size_t field, std::size_t from, std::size_t filled,
           std::vector<std::string_view>& pieces) {
    const std::string_view text = fields[field];
    if (from == text.size()) return split(fields, field + 1, filled, pieces);
    if (pieces.size() == filled || found_.readings.size() > 8) return;
    for (std::size_t end = from + 1; end <= text.size(); ++end) {
      const std::string_view piece = text.substr(from, end - from);
      if (!fits(piece, heading_.affinity[pieces.size()], true)) continue;
      pieces.push_back(piece);
      cut(fields, field, end, filled, pieces);
      pieces.pop_back();
    }
  }

  void keep(const std::vector<std::string_view>& fields) {
    row_.cpus.clear();
    row_.numa.clear();
    for (std::size_t i = 0; i < std::min(fields.size(), heading_.affinity.size()); ++i) {
      if (heading_.affinity[i] == AffinityColumn::cpus) row_.cpus = fields[i];
      if (heading_.affinity[i] == AffinityColumn::numa) row_.numa = fields[i];
    }
    const std::string text = end_of(row_);
    const auto same = [&](const MatrixRow& other) { return other.device == row_.device && end_of(other) == text; };
    if (std::none_of(found_.readings.begin(), found_.readings.end(), same)) found_.readings.push_back(row_);
  }

  std::string_view line_;
  const MatrixHeading& heading_;
  std::vector<std::string_view> words_;
  std::size_t used_ = 0;  // columns of affinity up to the last needed one
  MatrixRow row_;
  RowReadings found_;
};

// The length of "GPU0", "NIC0", "mlx5_0" or "mlx5_bond_0" at the start of a text; 0 for other names.
std::size_t length_of_numbered_name(std::string_view text) {
  const auto after_digits = [&](std::size_t from) {
    const std::size_t end = std::min(text.find_first_not_of(digits, from), text.size());
    return end > from ? end : 0;
  };
  if (text.starts_with("GPU") || text.starts_with("NIC")) return after_digits(3);
  if (!text.starts_with("mlx")) return 0;
  std::size_t end = after_digits(3);
  if (end == 0 || end == text.size() || text[end] != '_') return 0;
  ++end;
  if (text.substr(end).starts_with("bond_")) end += 5;
  return after_digits(end);
}

// Splits a word into the names that ran together in it, or returns it as one name.
void append_names(std::string_view word, std::vector<std::string>& names) {
  std::vector<std::string> several;
  for (std::string_view rest = word; !rest.empty();) {
    const std::size_t length = length_of_numbered_name(rest);
    if (length == 0) {
      names.emplace_back(word);
      return;
    }
    several.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  names.insert(names.end(), several.begin(), several.end());
}

}  // namespace

bool is_labels(std::string_view word) {
  while (!word.empty()) {
    const std::vector<Label> labels = labels_at(word);
    if (labels.empty()) return false;
    word.remove_prefix(labels.front().length);
  }
  return true;
}

std::optional<MatrixHeading> heading_from(std::string_view line) {
  MatrixHeading heading;
  std::string_view devices = without_blanks_around(line.substr(0, std::min(line.find("CPU"), line.find("NUMA"))));
  if (devices.ends_with("GPU")) devices.remove_suffix(3);  // of "GPU NUMA ID"
  const std::vector<std::string_view> words = words_in(devices);
  if (words.empty() || (words.size() > 1 && is_labels(words[1]))) return std::nullopt;
  for (const std::string_view word : words) append_names(word, heading.devices);
  const std::string& first = heading.devices.front();
  if (!first.starts_with("GPU") || length_of_numbered_name(first) != first.size()) return std::nullopt;

  std::string titles(line.substr(static_cast<std::size_t>(devices.data() - line.data()) + devices.size()));
  std::erase_if(titles, [](char c) { return blanks.find(c) != std::string_view::npos; });
  static constexpr std::pair<std::string_view, AffinityColumn> known[] = {
      {"CPUAffinity", AffinityColumn::cpus}, {"CPU", AffinityColumn::cpus},  {"NUMAAffinity", AffinityColumn::numa},
      {"NUMANode", AffinityColumn::numa},    {"NUMA", AffinityColumn::numa}, {"GPUNUMAID", AffinityColumn::gpu_numa},
      {"GPUNUMA", AffinityColumn::gpu_numa}};
  for (std::string_view rest = titles; !rest.empty();) {
    const auto title =
        std::find_if(std::begin(known), std::end(known), [&](const auto& k) { return rest.starts_with(k.first); });
    if (title == std::end(known)) break;
    heading.affinity.push_back(title->second);
    rest.remove_prefix(title->first.size());
  }
  return heading;
}

RowReadings readings_of(std::string_view line, const MatrixHeading& heading) { return RowReader(line, heading).read(); }

std::string end_of(const MatrixRow& row) {
  const auto named = [](const char* what, const std::string& value) {
    return std::string(", ") + what + " " + (value.empty() ? "missing" : value);
  };
  return row.last_cell + named("CPU affinity", row.cpus) + named("NUMA affinity", row.numa);
}

}  // namespace plait::topology
