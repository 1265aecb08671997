// Binds the rank of each GPU to processors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/choices.h"
#include "core/cpu_binding.h"
#include "core/device.h"
#include "topology/fabric.h"

namespace plait::site {

// The binding for a device of this process: a GPU's rank belongs to the NUMA node of the GPU. Ranks on CPUs share all
// processors and are not bound, and none is bound if launch.bind says so: binding is then not useful.
CpuBinding rank_binding(const CpuTopology& machine, Device device, RankBinding bind);

// The bindings of all devices in one line: "cuda:0 to cuda:3 bound to NUMA node 0 (CPUs 0-47), cuda:4 not bound: ...". "" if
// all are CPUs.
std::string binding_text(const std::vector<Device>& devices, const std::vector<CpuBinding>& bindings);

// The text for the devices of this machine.
std::string binding_text(const std::vector<Device>& devices, RankBinding bind);

// The text of plans if launch.bind is none.
inline constexpr std::string_view not_bound = "not bound: launch.bind is none";

// For a plan: the NUMA nodes of ranks in the topology: "ranks 0-3 on NUMA node 0, ranks 4-7 on NUMA node 1"; for more than one
// host the number of ranks on each node. `gpu_of_rank`: GPUs of the fabric.
std::string planned_binding_text(const topology::Fabric& fabric, const std::vector<int>& gpu_of_rank);

// Binds the calling thread, which must not have started anything yet: streams, pinned memory and further threads come later. If
// binding would have been useful but is impossible, one line on stderr says why.
void bind_rank(int rank, Device device, RankBinding bind);

}  // namespace plait::site
