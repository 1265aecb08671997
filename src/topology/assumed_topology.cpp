#include "topology/assumed_topology.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "topology/device_profile.h"
#include "topology/gpu_models.h"
#include "topology/nominal.h"
#include "topology/replicate.h"

namespace plait::topology {
namespace {

constexpr int gpus_of_host = 8;
constexpr double memory_gb_per_s = 5;  // a copy from one CPU rank to another through memory

// Each GPU has its own PCIe switch, which also holds its NIC if it has one, so that its traffic to other hosts goes through
// that NIC.
Graph host_of(const GpuModel& gpu_model, int gpus) {
  const double pcie = nominal_pcie_gb_per_s(gpu_model.pcie_gt_per_s, 16).value_or(pcie_gb_per_s);
  Graph graph;
  const auto numa_of = [](int gpu) { return 2 * gpu / gpus_of_host; };
  const auto switch_node = [&](int gpu) { return gpus + gpu; };
  const auto numa_node = [&](int numa) { return 2 * gpus + numa; };
  for (int n = 0; n < gpus; ++n) {
    graph.nodes.push_back({.kind = NodeKind::gpu,
                           .name = "GPU" + std::to_string(n),
                           .host = 0,
                           .index = n,
                           .numa = numa_of(n),
                           .model = std::string(gpu_model.capability)});
  }
  for (int n = 0; n < gpus; ++n)
    graph.nodes.push_back({.kind = NodeKind::pcie_switch, .name = "switch of GPU" + std::to_string(n), .host = 0});
  for (int numa = 0; numa < 2; ++numa) {
    graph.nodes.push_back({.kind = NodeKind::numa, .name = "NUMA" + std::to_string(numa), .host = 0, .numa = numa});
  }
  for (int n = 0; n < gpus; ++n) {
    graph.edges.push_back(nominal_edge(n, switch_node(n), LinkKind::pcie, pcie));
    graph.edges.push_back(nominal_edge(switch_node(n), numa_node(numa_of(n)), LinkKind::pcie, pcie));
  }
  graph.edges.push_back(nominal_edge(numa_node(0), numa_node(1), LinkKind::smp, std::max(smp_gb_per_s, pcie)));
  if (gpu_model.nvlink_lanes > 0 && gpus > 1) {
    const int nvswitch = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back({.kind = NodeKind::nvswitch, .name = "NVSwitch", .host = 0});
    const double lane = nominal_lane_gb_per_s(gpu_model.capability).value_or(unknown_lane_gb_per_s);
    for (int n = 0; n < gpus; ++n) {
      graph.edges.push_back(nominal_edge(n, nvswitch, LinkKind::nvlink, lane * gpu_model.nvlink_lanes, gpu_model.nvlink_lanes));
    }
  }
  return graph;
}

// Places NICs that GPUs share at the sockets, in turn. (Where each GPU has its own, replicate() puts them next to it.)
void add_shared_nics(Graph& host, const GpuModel& gpu_model) {
  for (int n = 0; n < gpu_model.nics_of_host; ++n) {
    const int numa = n % 2, nic = static_cast<int>(host.nodes.size());
    const auto is_socket = [&](const Node& node) { return node.kind == NodeKind::numa && node.numa == numa; };
    const auto socket = std::find_if(host.nodes.begin(), host.nodes.end(), is_socket) - host.nodes.begin();
    host.nodes.push_back({.kind = NodeKind::nic,
                          .name = "NIC" + std::to_string(n),
                          .host = 0,
                          .numa = numa,
                          .port_gb_per_s = gpu_model.nic_gb_per_s});
    host.edges.push_back(
        nominal_edge(nic, static_cast<int>(socket), LinkKind::pcie, std::max(pcie_gb_per_s, gpu_model.nic_gb_per_s)));
  }
}

Graph shared_memory(int ranks) {
  Graph graph;
  for (int n = 0; n < ranks; ++n)
    graph.nodes.push_back({.kind = NodeKind::gpu, .name = "CPU rank " + std::to_string(n), .host = 0, .index = n, .numa = 0});
  graph.nodes.push_back({.kind = NodeKind::numa, .name = "memory", .host = 0, .numa = 0});
  for (int n = 0; n < ranks; ++n) graph.edges.push_back(nominal_edge(n, ranks, LinkKind::pcie, memory_gb_per_s));
  return graph;
}

}  // namespace

AssumedTopology assume_topology(DeviceKind kind, const std::string& device, int ranks) {
  require(ranks >= 1, "assume_topology: at least one rank");
  if (kind == DeviceKind::host)
    return {shared_memory(ranks), fmt::format("{} that share one memory", plural(ranks, "CPU rank"))};
  const std::string name = nominal_profile(device).name;
  const auto models = gpu_models();
  const auto found = std::find_if(models.begin(), models.end(), [&](const GpuModel& m) { return m.name == name; });
  require(found != models.end(), "assume_topology: no server has a " + name);
  const GpuModel& gpu_model = *found;
  const std::string links =
      gpu_model.nvlink_lanes > 0 ? fmt::format("one NVSwitch (NV{})", gpu_model.nvlink_lanes) : "PCIe, two sockets";
  if (ranks <= gpus_of_host) return {host_of(gpu_model, ranks), fmt::format("{} {}s on {}", ranks, name, links)};
  const int hosts = (ranks + gpus_of_host - 1) / gpus_of_host;
  const bool shared = gpu_model.nics_of_host < gpus_of_host;
  Graph host = host_of(gpu_model, gpus_of_host);
  if (shared) add_shared_nics(host, gpu_model);
  const std::string nics = !shared                       ? "per GPU on rails"
                           : gpu_model.nics_of_host == 1 ? "per host"
                                                         : fmt::format("for {} GPUs", gpus_of_host / gpu_model.nics_of_host);
  return {replicate(host, {.hosts = hosts, .network = NetworkShape::rail, .nic_gb_per_s = gpu_model.nic_gb_per_s}),
          fmt::format("{} hosts of {} {}s on {}, a {:g} GB/s NIC {}", hosts, gpus_of_host, name, links, gpu_model.nic_gb_per_s,
                      nics)};
}

}  // namespace plait::topology
