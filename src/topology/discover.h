// Discovers the machine that this process runs on, as a graph.
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
  // PCI addresses of the GPUs that this process sees, in CUDA's order. They get the numbers 0, 1, ...; other GPUs that NVML
  // knows follow by address.
  std::vector<std::string> cuda_gpus = {};
};

struct Discovered {
  // Has no problems, except that there may be no GPU: then it holds NUMA nodes and NICs only. CPUs are not nodes of their own;
  // if ranks run on CPUs, the planner places them on the NUMA nodes.
  Graph graph;
  Machine machine;
};

// Discovers GPUs, their NVLinks and states from NVML; PCIe, NUMA nodes and NICs from sysfs. Nothing is measured, and nothing is
// allocated on a GPU. All bandwidths are nominal:
//
//   NVLink   lanes that are up times nominal_lane_gb_per_s; if the ends disagree, the one that lists more (NVML sometimes
//            finds no lane when asked concurrently). All NVSwitches are one node.
//   C2C      NVML's figure for the links that are up, to the NUMA node of the GPU.
//   PCIe     nominal_pcie_gb_per_s of the highest generation that both ends support (an idle link runs slower) and of the lanes
//            that run now. A switch is one node; its edge upwards is its upstream port's link, which all devices below it
//            share. A host bridge reaches the memory of its NUMA node as fast as all its root ports together.
//   SMP      one figure for every two NUMA nodes.
//   NICs     the rate of their active ports (InfiniBand) or the interface's speed; no edge leads from them to a network,
//            since the machine knows nothing about it. Interfaces that are functions of a NIC (SR-IOV) are not counted again.
//
// GPUs that sysfs does not list are attached to the NUMA node if it is known, or to one without a number, and a finding says
// so. Always returns a graph, even if the machine hides things; the findings list what was missing.
Discovered discover(const DiscoverRequest& request = {});

// discover() with the GPUs numbered in CUDA's order, and with peer access, native atomics and performance rank from CUDA for
// the pairs that it sees. CUDA overrides NVML, which does not know about a container's limits.
Discovered discover_live();

}  // namespace plait::topology
