// The machine that this process runs on, as a graph.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/machine.h"

namespace plait::topology {

struct DiscoverRequest {
  std::filesystem::path root = "/";  // where sys/, proc/ and dev/ are
  std::string nvml_library = "libnvidia-ml.so.1";
  // PCI addresses of the GPUs that this process sees, in CUDA's order. They get the numbers 0, 1, ...; other GPUs known to NVML
  // follow by address.
  std::vector<std::string> cuda_gpus = {};
};

struct Discovered {
  // Has no problems, except that there may be no GPU: then it holds NUMA nodes and NICs only. CPUs are not nodes of their own;
  // if ranks run on CPUs, the planner places them on the NUMA nodes.
  Graph graph;
  Machine machine;
};

// GPUs, their NVLinks and states from NVML; PCIe, NUMA nodes and NICs from sysfs. Nothing is measured and nothing allocated on
// a GPU. All bandwidths are nominal:
//
//   NVLink   lanes that are up times nominal_lane_gb_per_s; where the ends disagree, the one that lists more (NVML at times
//            finds no lane when asked by several at once). All NVSwitches are one node.
//   C2C      what NVML says of the links that are up, to the NUMA node of the GPU.
//   PCIe     nominal_pcie_gb_per_s of the generation that both ends can do (an idle link runs slower) and the lanes that run
//            now. A switch is one node, its edge upwards being its upstream port's link, which all below it share. A host
//            bridge reaches the memory of its NUMA node as fast as all its root ports together.
//   SMP      one figure for every two NUMA nodes.
//   NICs     the rate of their active ports (InfiniBand) or the interface's speed; no edge leads from them to a network, of
//            which the machine knows nothing. Interfaces that are functions of a NIC (SR-IOV) are not counted again.
//
// GPUs that sysfs does not list are attached to the NUMA node if it is known, or to one without a number, and a finding says
// so. Always returns a graph, whatever the machine hides; what was missing is among the findings.
Discovered discover(const DiscoverRequest& request = {});

}  // namespace plait::topology
