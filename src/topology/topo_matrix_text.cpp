#include "topology/topo_matrix_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "topology/import_error.h"

namespace plait::topology {
namespace {

constexpr std::size_t most_devices = 1024;

struct Line {
  int number = 0;
  std::string text;
};

// Without the escape sequences by which the heading is underlined in a terminal.
std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines(1);
  lines.back().number = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      const int next = lines.back().number + 1;
      lines.push_back({next, ""});
    } else if (c == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      i += 2;
      while (i < text.size() && (text[i] < '@' || text[i] > '~') && text[i] != '\n') ++i;
      if (i < text.size() && text[i] == '\n') --i;
    } else if (c != '\r') {
      lines.back().text += c;
    }
  }
  return lines;
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string_view::npos ? "" : std::string(text.substr(first, last - first + 1));
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t i = text.find_first_not_of(" \t"); i != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \t", i), text.size());
    words.emplace_back(text.substr(i, end - i));
    i = text.find_first_not_of(" \t", end);
  }
  return words;
}

// Cells of a row: between tabs, which may leave some empty; else words, as no cell has a space in it.
std::vector<std::string> cells_of(const std::string& row) {
  if (row.find('\t') == std::string::npos) return words_of(row);
  std::vector<std::string> cells;
  for (std::size_t i = 0; i <= row.size();) {
    const std::size_t end = std::min(row.find('\t', i), row.size());
    cells.push_back(trimmed(std::string_view(row).substr(i, end - i)));
    i = end + 1;
  }
  return cells;
}

std::optional<int> number_after(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data() + prefix.size(), end, value);
  if (status != std::errc() || rest != end || value < 0 || text[prefix.size()] == '-') return std::nullopt;
  return value;
}

std::optional<MatrixCell> cell_from(std::string_view text) {
  static constexpr std::pair<std::string_view, PcieLevel> labels[] = {
      {"X", PcieLevel::same},  {"PIX", PcieLevel::pix},   {"PSB", PcieLevel::pix}, {"PXB", PcieLevel::pxb},
      {"PHB", PcieLevel::phb}, {"NODE", PcieLevel::node}, {"SYS", PcieLevel::sys}, {"SOC", PcieLevel::sys}};
  for (const auto& [label, level] : labels) {
    if (label == text) return MatrixCell{0, level};
  }
  const std::optional<int> lanes = number_after("NV", text);
  if (lanes && *lanes > 0 && *lanes <= max_lanes) return MatrixCell{*lanes, PcieLevel::unknown};
  return std::nullopt;
}

// The names of the columns that are devices: all words before "CPU Affinity".
std::optional<std::vector<std::string>> heading_from(const std::string& line) {
  std::vector<std::string> words = words_of(line);
  if (words.empty() || !number_after("GPU", words[0]) || (words.size() > 1 && cell_from(words[1]))) return std::nullopt;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool affinity = (words[i] == "CPU" || words[i] == "NUMA") && i + 1 < words.size() && words[i + 1] == "Affinity";
    const bool gpu_numa = words[i] == "GPU" && i + 1 < words.size() && words[i + 1] == "NUMA";
    if (affinity || gpu_numa || words[i] == "CPU" || words[i] == "CPUAffinity") {
      words.resize(i);
      break;
    }
  }
  return words;
}

class MatrixReader {
 public:
  MatrixReader(std::string_view text, const std::string& name, std::vector<ImportWarning>& warnings)
      : name_(name), lines_(lines_of(text)), warnings_(warnings) {}

  TopoMatrix read() {
    std::size_t next = read_heading();
    for (; next < lines_.size(); ++next) {
      const std::string text = trimmed(lines_[next].text);
      if (text.empty()) continue;
      if (text.starts_with("Legend") || text.starts_with("NIC Legend") || rows_.size() == matrix_.devices.size()) break;
      if (!read_row(lines_[next])) break;
    }
    check_rows(next < lines_.size() ? lines_[next].number : lines_.back().number);
    make_symmetric();
    return std::move(matrix_);
  }

 private:
  [[noreturn]] void fail(int line, const std::string& value, const std::string& rule) const {
    refuse(name_, line, value, rule);
  }

  std::size_t read_heading() {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const auto heading = heading_from(lines_[i].text);
      if (!heading) continue;
      if (heading->size() > most_devices) fail(lines_[i].number, std::to_string(heading->size()), "at most 1024 devices");
      has_numa_ = lines_[i].text.find("NUMA Affinity") != std::string::npos;
      has_cpus_ = lines_[i].text.find("CPU Affinity") != std::string::npos;
      for (const std::string& label : *heading) {
        MatrixDevice device;
        device.name = label;
        device.gpu = number_after("GPU", label).value_or(-1);
        if (!numbers_.emplace(label, matrix_.devices.size()).second)
          fail(lines_[i].number, label, "there is already a column of this name");
        matrix_.devices.push_back(std::move(device));
      }
      matrix_.cells.assign(matrix_.devices.size(), std::vector<MatrixCell>(matrix_.devices.size()));
      return i + 1;
    }
    fail(1, "",
         "no topology: neither NCCL's XML, nor JSON, nor the matrix of `nvidia-smi topo -m`, whose heading starts with GPU0");
  }

  bool read_row(const Line& line) {
    std::vector<std::string> cells = cells_of(line.text);
    while (!cells.empty() && cells.front().empty()) cells.erase(cells.begin());
    const auto found = numbers_.find(cells.front());
    if (found == numbers_.end()) {
      if (cells.size() > 1 && cell_from(cells[1])) fail(line.number, cells.front(), "a row for a device that has no column");
      return false;
    }
    const std::size_t row = found->second, count = matrix_.devices.size();
    if (!rows_.insert(row).second) fail(line.number, cells.front(), "a second row for this device");
    if (cells.size() < count + 1) {
      fail(
          line.number, cells.front(),
          "its row has " + std::to_string(cells.size() - 1) + " of " + std::to_string(count) + " cells: is the text complete?");
    }
    MatrixDevice& device = matrix_.devices[row];
    device.line = line.number;
    for (std::size_t column = 0; column < count; ++column) {
      const std::string& text = cells[column + 1];
      const std::optional<MatrixCell> cell = cell_from(text);
      if (!cell) fail(line.number, text, "unknown label: NV1 to NV64, PIX, PSB, PXB, PHB, NODE, SYS, SOC and X are known");
      matrix_.cells[row][column] = *cell;
      if (row == column && cell->level != PcieLevel::same) {
        warnings_.push_back({line.number, device.name + (cell->lanes > 0 ? " lists a link to itself: ignored"
                                                                         : " is not X to itself: ignored")});
        matrix_.cells[row][column] = {0, PcieLevel::same};
      }
      if (row != column && cell->level == PcieLevel::same)
        fail(line.number, text,
             device.name + " and " + matrix_.devices[column].name + " are two devices: X is for a device and itself");
    }
    if (has_cpus_ && cells.size() > count + 1 && cells[count + 1] != "N/A") device.cpus = cells[count + 1];
    const std::size_t numa_column = count + (has_cpus_ ? 2 : 1);
    if (has_numa_ && cells.size() > numa_column) device.numa = number_after("", cells[numa_column]).value_or(-1);
    return true;
  }

  void check_rows(int end) {
    for (std::size_t i = 0; i < matrix_.devices.size(); ++i) {
      if (rows_.contains(i)) continue;
      const std::string& label = matrix_.devices[i].name;
      if (matrix_.devices[i].gpu >= 0) fail(end, label, "the row of this GPU is missing: is the text complete?");
      warnings_.push_back({end, "the row of " + label + " is missing: only its column is used"});
      for (std::size_t j = 0; j < matrix_.devices.size(); ++j)
        matrix_.cells[i][j] = i == j ? MatrixCell{0, PcieLevel::same} : matrix_.cells[j][i];
    }
  }

  void make_symmetric() {
    for (std::size_t i = 0; i < matrix_.devices.size(); ++i) {
      for (std::size_t j = i + 1; j < matrix_.devices.size(); ++j) {
        MatrixCell &one = matrix_.cells[i][j], &other = matrix_.cells[j][i];
        if (one.lanes == other.lanes && one.level == other.level) continue;
        const std::string pair = matrix_.devices[i].name + " and " + matrix_.devices[j].name;
        MatrixCell agreed;
        std::string message;
        if (one.lanes > 0 && other.lanes > 0) {
          agreed.lanes = std::min(one.lanes, other.lanes);
          message = "list different numbers of lanes to each other: the lower one is used";
        } else if (one.lanes > 0 || other.lanes > 0) {
          agreed = one.lanes > 0 ? other : one;
          message = "have a link that only one of them lists: ignored";
        } else {
          agreed.level = std::max(one.level, other.level);
          message = "list different paths to each other: the longer one is used";
        }
        one = other = agreed;
        warnings_.push_back({std::max(matrix_.devices[i].line, matrix_.devices[j].line), pair + " " + message});
      }
    }
  }

  std::string name_;
  std::vector<Line> lines_;
  std::vector<ImportWarning>& warnings_;
  TopoMatrix matrix_;
  std::map<std::string, std::size_t> numbers_;
  std::set<std::size_t> rows_;
  bool has_cpus_ = false, has_numa_ = false;
};

}  // namespace

TopoMatrix read_topo_matrix(std::string_view text, const std::string& name, std::vector<ImportWarning>& warnings) {
  return MatrixReader(text, name, warnings).read();
}

}  // namespace plait::topology
