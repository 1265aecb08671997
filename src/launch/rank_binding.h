// Which processors the rank of each GPU runs on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/choices.h"
#include "core/cpu_binding.h"
#include "core/device.h"
#include "topology/fabric.h"

namespace plait::launch {

// For a device of this process: a GPU's rank belongs to the NUMA node that the GPU is at. Ranks on CPUs share all processors
// and are not bound, nor is any where launch.bind says so: that is not useful.
CpuBinding rank_binding(const CpuTopology& machine, Device device, RankBinding bind);

// What binding_for says of every device, in one line: "cuda:0 to cuda:3 bound to NUMA node 0 (CPUs 0-47), cuda:4 not bound:
// ...". "" where all are CPUs.
std::string binding_text(const std::vector<Device>& devices, const std::vector<CpuBinding>& bindings);

// The same for the devices of this machine.
std::string binding_text(const std::vector<Device>& devices, RankBinding bind);

// What plans say where launch.bind is none.
inline constexpr std::string_view not_bound = "not bound: launch.bind is none";

// For a plan: at which NUMA nodes ranks will be, as the topology has it: "ranks 0-3 on NUMA node 0, ranks 4-7 on NUMA node 1";
// of several hosts how many ranks each node gets. `gpu_of_rank`: GPUs of the fabric.
std::string planned_binding_text(const topology::Fabric& fabric, const std::vector<int>& gpu_of_rank);

// Binds the calling thread, which must not have started anything yet: streams, pinned memory and further threads come later. If
// binding would have been useful but is impossible, one line on stderr says why.
void bind_rank(int rank, Device device, RankBinding bind);

}  // namespace plait::launch
