// The cells of a matrix as `nvidia-smi topo -m` prints it, checked and made symmetric.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import.h"

namespace plait::topology {

// The distance of two devices on PCIe, nearest first.
enum class PcieLevel { same, pix, pxb, phb, node, sys, unknown };

struct MatrixCell {
  int lanes = 0;                         // of NVLink
  PcieLevel level = PcieLevel::unknown;  // unknown if the cell names NVLinks instead
};

struct MatrixDevice {
  std::string name;  // "GPU0", "mlx5_0"
  int gpu = -1;      // N of GPUN; -1: a NIC
  int line = 0;      // of its row
  std::string cpus;  // CPU affinity, "" if there is none
  int numa = -1;     // NUMA affinity
};

struct TopoMatrix {
  std::vector<MatrixDevice> devices;
  std::vector<std::vector<MatrixCell>> cells;  // symmetric
};

TopoMatrix read_topo_matrix(std::string_view text, const std::string& name, std::vector<ImportWarning>& warnings);

// Reads one line of the matrix that `nvidia-smi topo -m` prints, with cells that may have run together.

enum class AffinityColumn { cpus, numa, gpu_numa };

struct MatrixHeading {
  std::vector<std::string> devices;
  std::vector<AffinityColumn> affinity;  // the columns after those of devices, in their order
};

// nullopt for a line that does not start with GPU0, GPU1, ... as the name of a column.
std::optional<MatrixHeading> heading_from(std::string_view line);

struct MatrixRow {
  std::size_t device = 0;  // index in the heading
  std::vector<MatrixCell> cells;
  std::string last_cell;   // as written
  std::string cpus, numa;  // "" or "N/A" if unknown
};

// All ways to read a line as a row. Blanks and tabs separate cells, and inside of a word a new cell starts wherever a label
// ends: `PIXNODE` is PIX and NODE, but `NV120-31` at the end may be 12 lanes and CPUs 0-31 or one lane and CPUs 20-31. If
// affinity columns ran together, each must get a possible value. Without a reading, it says how far the reader came.
struct RowReadings {
  std::vector<MatrixRow> readings;
  bool is_row = false;    // it starts with the name of a device of the heading
  std::size_t cells = 0;  // that could be read
  std::string stuck_at;   // readable ones
};
RowReadings readings_of(std::string_view line, const MatrixHeading& heading);

// True if a word is one or more labels.
bool is_labels(std::string_view word);

// "NV12, CPU affinity 0-31, NUMA affinity 0": from the last cell on, where readings differ.
std::string end_of(const MatrixRow& row);

}  // namespace plait::topology
