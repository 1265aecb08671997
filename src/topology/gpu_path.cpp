#include "topology/gpu_path.h"

namespace plait::topology {

std::string PathFacts::link() const {
  if (same_memory) return "same memory";
  if (nvlinks > 0) return "NV" + std::to_string(nvlinks) + (nvswitch ? " (switch)" : "");
  return pcie_path.empty() ? "unknown" : pcie_path;
}

}  // namespace plait::topology
