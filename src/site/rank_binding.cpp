#include "site/rank_binding.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/message.h"
#include "topology/discover.h"
#include "topology/gpu_path.h"
#include "topology/sysfs.h"

namespace plait::site {

CpuBinding rank_binding(const CpuTopology& machine, Device device, RankBinding bind) {
  if (!device.is_cuda() || bind == RankBinding::none) {
    CpuBinding none;
    none.obstacle = device.is_cuda() ? "launch.bind is none" : "ranks on CPUs share all processors";
    none.useful = false;
    return none;
  }
  const std::vector<std::string> gpus = topology::cuda_gpus();
  const auto index = static_cast<std::size_t>(device.index);
  return binding_for(machine, index < gpus.size() ? topology::Sysfs().numa_of(gpus[index]) : -1);
}

std::string binding_text(const std::vector<Device>& devices, const std::vector<CpuBinding>& bindings) {
  require(devices.size() == bindings.size(), "one binding for each device");
  std::string text;
  for (std::size_t i = 0; i < devices.size();) {
    std::size_t last = i;
    while (last + 1 < devices.size() && devices[last + 1].is_cuda() && bindings[last + 1] == bindings[i]) ++last;
    if (devices[i].is_cuda()) {
      text += (text.empty() ? "" : ", ") + to_string(devices[i]) + (last > i ? " to " + to_string(devices[last]) : "");
      text += bindings[i].possible() ? fmt::format(" bound to NUMA node {} (CPUs {})", bindings[i].numa, bindings[i].cpus)
                                     : " not bound: " + bindings[i].obstacle;
    }
    i = last + 1;
  }
  return text;
}

std::string binding_text(const std::vector<Device>& devices, RankBinding bind) {
  bool any = false;
  for (const Device device : devices) any = any || device.is_cuda();
  if (!any) return "";
  const CpuTopology machine;
  std::vector<CpuBinding> bindings;
  for (const Device device : devices) bindings.push_back(rank_binding(machine, device, bind));
  return binding_text(devices, bindings);
}

std::string planned_binding_text(const topology::Fabric& fabric, const std::vector<int>& gpu_of_rank) {
  std::map<std::pair<int, int>, std::vector<int>> ranks_at;  // by host and NUMA node
  std::set<int> hosts;
  for (std::size_t rank = 0; rank < gpu_of_rank.size(); ++rank) {
    const topology::Node& gpu = fabric.gpu(gpu_of_rank[rank]);
    if (gpu.numa < 0) return "not bound: the topology does not say which NUMA node " + gpu.name + " belongs to";
    ranks_at[{gpu.host, gpu.numa}].push_back(static_cast<int>(rank));
    hosts.insert(gpu.host);
  }
  if (hosts.size() > 1) {
    std::size_t fewest = gpu_of_rank.size(), most = 0;
    for (const auto& [node, ranks] : ranks_at) fewest = std::min(fewest, ranks.size()), most = std::max(most, ranks.size());
    const std::string each = fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most);
    return fmt::format("every rank on the NUMA node of its GPU, {} on each of {} nodes of {} hosts", each, ranks_at.size(),
                       hosts.size());
  }
  std::string text;
  for (const auto& [node, ranks] : ranks_at) {
    text += std::string(text.empty() ? "" : ", ") + (ranks.size() == 1 ? "rank" : "ranks");
    for (std::size_t first = 0; first < ranks.size();) {
      std::size_t last = first;
      while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
      text += last == first ? fmt::format(" {}", ranks[first]) : fmt::format(" {}-{}", ranks[first], ranks[last]);
      first = last + 1;
    }
    text += fmt::format(" on NUMA node {}", node.second);
  }
  return text;
}

void bind_rank(int rank, Device device, RankBinding bind) {
  if (!device.is_cuda() || bind == RankBinding::none) return;
  const CpuTopology machine;
  const CpuBinding binding = rank_binding(machine, device, bind);
  if (!binding.useful) return;
  const std::string why = bind_this_thread(machine, binding);
  if (!why.empty())
    message_to_stderr(fmt::format("rank {} ({}) is not bound to a NUMA node: {}", rank, to_string(device), why));
}

}  // namespace plait::site
