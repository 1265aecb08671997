// Facts from CUDA and NVML about the way from one GPU to another. Defined in cuda/, or in no_cuda.cpp where plait is built
// without CUDA (it sees no GPU, and asking for a path throws DeviceError).
#pragma once

#include <string>
#include <vector>

namespace plait::topology {

// A third GPU, and how the GPU of this end reaches it.
struct Bridge {
  std::string bus_id;
  int nvlinks = 0;           // as in PathFacts
  int performance_rank = 0;  // as below
  friend bool operator==(const Bridge&, const Bridge&) = default;
};

// The way from a GPU of this process to another device of its host. For a GPU that this process does not see
// (CUDA_VISIBLE_DEVICES), NVML supplies the facts that CUDA does not; otherwise they are unknown.
struct PathFacts {
  bool visible = false;       // to this process
  bool same_memory = false;   // CPUs of one host, or the same GPU
  bool peer_access = false;   // cudaDeviceCanAccessPeer; for an unseen GPU, NVML's answer
  std::string why_no_access;  // NVML's reason; "" with access, or if NVML does not know
  bool native_atomics = false;
  int performance_rank = 0;  // cudaDevP2PAttrPerformanceRank, 0 the best
  int nvlinks = 0;           // lanes of this GPU that lead to the other or to a switch they share
  bool nvswitch = false;
  std::string pcie_path;  // "PIX", "PXB", "PHB", "NODE", "SYS" as nvidia-smi names them, "board"; "" when unknown
  // Further GPUs that this end's GPU can reach, and the other's too if it is seen, as far as this end's process knows. A bridge
  // is in the lists of both ends.
  std::vector<Bridge> bridges;
  // "NV18 (switch)", "NV4", "PHB", "same memory", "unknown"
  std::string link() const {
    if (same_memory) return "same memory";
    if (nvlinks > 0) return "NV" + std::to_string(nvlinks) + (nvswitch ? " (switch)" : "");
    return pcie_path.empty() ? "unknown" : pcie_path;
  }
  friend bool operator==(const PathFacts&, const PathFacts&) = default;
};

// The PCI address of a GPU that this process sees, by the number that CUDA gives it.
std::string bus_id_of_gpu(int ordinal);

// The NVLink fabric between hosts that the GPU at this address has joined (Nvml::fabric_clique); "": none.
std::string fabric_clique_of_gpu(const std::string& bus_id);

// PCI addresses of the GPUs that this process sees, in CUDA's order; none without a driver or in a build without CUDA. Makes no
// context.
std::vector<std::string> cuda_gpus();

// The path from the GPU that this process counts as `ordinal`, with the address `from`, to the one with the address `to`.
PathFacts gpu_path(int ordinal, const std::string& from, const std::string& to);

}  // namespace plait::topology
