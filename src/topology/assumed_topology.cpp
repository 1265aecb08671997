#include "topology/assumed_topology.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/error.h"
#include "topology/device_profile.h"
#include "topology/nominal.h"
#include "topology/replicate.h"

namespace plait::topology {
namespace {

constexpr int gpus_of_host = 8;
constexpr double nic_gb_per_s = 50;    // 400 Gbit/s
constexpr double memory_gb_per_s = 5;  // what one CPU rank copies to another through memory

struct Server {
  std::string_view device;
  const char* model;
  int nvlink_lanes;  // to a switch; 0: PCIe only
  double pcie_gb_per_s;
};

// Lanes as of HGX and DGX machines; PCIe Gen3, 4 and 5 x16 as they are reached.
constexpr Server servers[] = {
    {"V100", "sm70", 6, 12},   {"A100", "sm80", 12, 24}, {"H100", "sm90", 18, 48},    {"H200", "sm90", 18, 48},
    {"B200", "sm100", 18, 48}, {"L40S", "sm89", 0, 24},  {"RTX 4090", "sm89", 0, 24},
};

// Each GPU at a PCIe switch of its own, where its NIC comes too: so that what it sends to other hosts goes by that one.
Graph host_of(const Server& server, int gpus) {
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
                           .model = server.model});
  }
  for (int n = 0; n < gpus; ++n)
    graph.nodes.push_back({.kind = NodeKind::pcie_switch, .name = "switch of GPU" + std::to_string(n), .host = 0});
  for (int numa = 0; numa < 2; ++numa) {
    graph.nodes.push_back({.kind = NodeKind::numa, .name = "NUMA" + std::to_string(numa), .host = 0, .numa = numa});
  }
  for (int n = 0; n < gpus; ++n) {
    graph.edges.push_back(nominal_edge(n, switch_node(n), LinkKind::pcie, server.pcie_gb_per_s));
    graph.edges.push_back(nominal_edge(switch_node(n), numa_node(numa_of(n)), LinkKind::pcie, server.pcie_gb_per_s));
  }
  graph.edges.push_back(nominal_edge(numa_node(0), numa_node(1), LinkKind::smp, std::max(smp_gb_per_s, server.pcie_gb_per_s)));
  if (server.nvlink_lanes > 0 && gpus > 1) {
    const int nvswitch = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back({.kind = NodeKind::nvswitch, .name = "NVSwitch", .host = 0});
    const double lane = nominal_lane_gb_per_s(server.model).value_or(unknown_lane_gb_per_s);
    for (int n = 0; n < gpus; ++n) {
      graph.edges.push_back(nominal_edge(n, nvswitch, LinkKind::nvlink, lane * server.nvlink_lanes, server.nvlink_lanes));
    }
  }
  return graph;
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
  if (kind == DeviceKind::host) return {shared_memory(ranks), fmt::format("{} CPU ranks that share one memory", ranks)};
  const std::string name = nominal_profile(device).name;
  const Server* server =
      std::find_if(std::begin(servers), std::end(servers), [&](const Server& s) { return s.device == name; });
  require(server != std::end(servers), "assume_topology: no server has a " + name);
  const std::string links =
      server->nvlink_lanes > 0 ? fmt::format("one NVSwitch (NV{})", server->nvlink_lanes) : "PCIe, two sockets";
  if (ranks <= gpus_of_host) return {host_of(*server, ranks), fmt::format("{} {}s on {}", ranks, name, links)};
  const int hosts = (ranks + gpus_of_host - 1) / gpus_of_host;
  return {
      replicate(host_of(*server, gpus_of_host), {.hosts = hosts, .network = NetworkShape::rail, .nic_gb_per_s = nic_gb_per_s}),
      fmt::format("{} hosts of {} {}s on {}, a {:g} GB/s NIC per GPU on rails", hosts, gpus_of_host, name, links,
                  nic_gb_per_s)};
}

}  // namespace plait::topology
