#include "topology/topo_matrix.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "topology/importers.h"

namespace plait::topology {
namespace {

constexpr std::size_t most_devices = 1024;

struct Line {
  int number = 0;
  std::string text;
};

// Removes the escape sequences by which the heading is underlined in a terminal; the bars of a Markdown table and the blanks of
// a web page separate cells like tabs and blanks.
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
    } else if (text.substr(i).starts_with("\xc2\xa0")) {
      lines.back().text += ' ';
      ++i;
    } else if (c != '\r') {
      lines.back().text += c == '|' ? '\t' : c;
    }
  }
  return lines;
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string_view::npos ? "" : std::string(text.substr(first, last - first + 1));
}

std::optional<int> number_after(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data() + prefix.size(), end, value);
  if (status != std::errc() || rest != end || value < 0 || text[prefix.size()] == '-') return std::nullopt;
  return value;
}

class MatrixReader {
 public:
  MatrixReader(std::string_view text, const std::string& name, std::vector<ImportWarning>& warnings)
      : name_(name), lines_(lines_of(text)), warnings_(warnings) {}

  TopoMatrix read() {
    std::size_t next = read_heading();
    for (; next < lines_.size(); ++next) {
      const std::string text = trimmed(lines_[next].text);
      if (text.find_first_not_of("-: \t") == std::string::npos) continue;  // also the rule of a Markdown table
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
      std::optional<MatrixHeading> heading = heading_from(lines_[i].text);
      if (!heading) continue;
      if (heading->devices.size() > most_devices)
        fail(lines_[i].number, std::to_string(heading->devices.size()), "at most 1024 devices");
      heading_ = std::move(*heading);
      std::set<std::string> labels;
      for (const std::string& label : heading_.devices) {
        MatrixDevice device;
        device.name = label;
        device.gpu = number_after("GPU", label).value_or(-1);
        if (!labels.insert(label).second) fail(lines_[i].number, label, "there is already a column of this name");
        matrix_.devices.push_back(std::move(device));
      }
      matrix_.cells.assign(matrix_.devices.size(), std::vector<MatrixCell>(matrix_.devices.size()));
      return i + 1;
    }
    fail(1, "",
         "no topology: neither NCCL's XML, nor JSON, nor the matrix of `nvidia-smi topo -m`, whose heading starts with GPU0");
  }

  // The only way to read a line as a row; nullopt if it is none.
  std::optional<MatrixRow> row_from(const Line& line) const {
    const RowReadings found = readings_of(line.text, heading_);
    const std::string first = trimmed(line.text).substr(0, trimmed(line.text).find_first_of(" \t"));
    const std::size_t count = heading_.devices.size();
    if (!found.is_row) {
      const std::string rest = trimmed(std::string_view(trimmed(line.text)).substr(first.size()));
      if (!rest.empty() && is_labels(rest.substr(0, rest.find_first_of(" \t"))))
        fail(line.number, first, "a row for a device that has no column");
      return std::nullopt;
    }
    if (found.readings.size() > 1) {
      fail(line.number, first,
           "cells ran together, and the end of this row has two readings: '" + end_of(found.readings[0]) + "' and '" +
               end_of(found.readings[1]) + "'. Put blanks between the cells");
    }
    if (found.readings.size() == 1) return found.readings.front();
    if (found.cells == count)
      fail(line.number, found.stuck_at, "cells ran together, and this has no reading: put blanks there");
    if (!found.stuck_at.empty() && (found.stuck_at.front() < '0' || found.stuck_at.front() > '9')) {
      fail(line.number, found.stuck_at, "unknown label: NV1 to NV64, PIX, PSB, PXB, PHB, NODE, SYS, SOC and X are known");
    }
    fail(line.number, first,
         "its row has " + std::to_string(found.cells) + " of " + std::to_string(count) + " cells: is the text complete?");
  }

  bool read_row(const Line& line) {
    std::optional<MatrixRow> found = row_from(line);
    if (!found) return false;
    const std::size_t row = found->device, count = matrix_.devices.size();
    MatrixDevice& device = matrix_.devices[row];
    if (!rows_.insert(row).second) fail(line.number, device.name, "a second row for this device");
    device.line = line.number;
    for (std::size_t column = 0; column < count; ++column) {
      const MatrixCell cell = found->cells[column];
      matrix_.cells[row][column] = cell;
      if (row == column && cell.level != PcieLevel::same) {
        warnings_.push_back({line.number, device.name + (cell.lanes > 0 ? " lists a link to itself: ignored"
                                                                        : " is not X to itself: ignored")});
        matrix_.cells[row][column] = {0, PcieLevel::same};
      }
      if (row != column && cell.level == PcieLevel::same)
        fail(line.number, "X",
             device.name + " and " + matrix_.devices[column].name + " are two devices: X is for a device and itself");
    }
    if (found->cpus != "N/A") device.cpus = found->cpus;
    device.numa = number_after("", found->numa).value_or(-1);
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
  MatrixHeading heading_;
  std::set<std::size_t> rows_;
};

}  // namespace

TopoMatrix read_topo_matrix(std::string_view text, const std::string& name, std::vector<ImportWarning>& warnings) {
  return MatrixReader(text, name, warnings).read();
}

}  // namespace plait::topology
