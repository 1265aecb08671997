// The cells of a matrix as `nvidia-smi topo -m` prints it, checked and made symmetric.
#pragma once

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

}  // namespace plait::topology
