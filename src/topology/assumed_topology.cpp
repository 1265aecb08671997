#include "topology/assumed_topology.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "core/index.h"
#include "topology/device_profile.h"
#include "topology/nominal.h"

namespace plait::topology {
namespace {

constexpr const char* hosts_key = "--replicate";

[[noreturn]] void reject(const std::string& place, const std::string& value, const std::string& rule) {
  throw ConfigError(std::vector<ConfigProblem>{{place, value, rule, "", 0}});
}

// The PCIe switch or host bridge above a device, or the NUMA node if there is neither; -1 without any.
int above(const Graph& graph, int device) {
  for (const Edge& edge : graph.edges) {
    if (edge.kind == LinkKind::pcie && (edge.a == device || edge.b == device)) return edge.a == device ? edge.b : edge.a;
  }
  return -1;
}

void check_host(const Graph& host, const std::string& times) {
  if (gpus_of(host).empty())
    reject(hosts_key, times,
           "makes copies of a host with GPUs, and this topology has none; name a file of one that has (--from)");
  const std::vector<std::string> problems = problems_of(host);
  if (!problems.empty()) reject("topology", "", problems.front());
  std::set<int> hosts;
  bool has_network = false;
  for (const Node& node : host.nodes) {
    has_network |= node.kind == NodeKind::network;
    if (node.kind != NodeKind::network) hosts.insert(node.host);
  }
  if (hosts.size() == 1 && !has_network) return;
  reject(hosts_key, times,
         "makes copies of one host, and this topology is already of " + std::to_string(hosts.size()) +
             (hosts.size() == 1 ? " host and its network" : " hosts") + "; name a file of one of them (--from)");
}

// Adds a NIC next to every GPU.
void add_nics(Graph& host) {
  const std::vector<int> gpus = gpus_of(host);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Node gpu = host.nodes[at(gpus[i])];
    const int parent = above(host, gpus[i]);
    if (parent < 0) reject("topology", gpu.name, "has no PCIe link that a NIC could share; add NICs to the topology");
    Node nic;
    nic.kind = NodeKind::nic;
    nic.name = "nic" + std::to_string(i);
    nic.host = gpu.host;
    nic.numa = gpu.numa;
    host.nodes.push_back(std::move(nic));
    const int index = static_cast<int>(host.nodes.size()) - 1;
    host.edges.push_back(nominal_edge(index, parent, LinkKind::pcie, pcie_gb_per_s));
  }
}

std::vector<int> network_nics(const Graph& host) {
  std::vector<bool> is_near(host.nodes.size(), false);
  for (const int gpu : gpus_of(host)) {
    const int parent = above(host, gpu);
    if (parent >= 0 && host.nodes[at(parent)].kind != NodeKind::numa) is_near[at(parent)] = true;
  }
  std::vector<int> all, near;
  for (std::size_t i = 0; i < host.nodes.size(); ++i) {
    if (host.nodes[i].kind != NodeKind::nic) continue;
    all.push_back(static_cast<int>(i));
    const int parent = above(host, all.back());
    if (parent >= 0 && is_near[at(parent)]) near.push_back(all.back());
  }
  return near.empty() ? all : near;
}

// Gives a NIC the PCIe bandwidth that its ports need, and likewise the GPUs that are placed next to it to send through it.
void widen_pcie(Graph& host, int nic, double gb_per_s) {
  const int parent = above(host, nic);
  for (Edge& edge : host.edges) {
    if (edge.kind != LinkKind::pcie || edge.bandwidth_from != Origin::nominal || (edge.a != parent && edge.b != parent))
      continue;
    const int device = edge.a == parent ? edge.b : edge.a;
    if (device == nic || host.nodes[at(device)].kind == NodeKind::gpu) edge.gb_per_s = std::max(edge.gb_per_s, gb_per_s);
  }
}

int add_switch(Graph& graph, const std::string& name) {
  Node node;
  node.kind = NodeKind::network;
  node.name = name;
  node.host = -1;
  graph.nodes.push_back(std::move(node));
  return static_cast<int>(graph.nodes.size()) - 1;
}

Graph build(const Graph& host, const std::vector<int>& nics, const std::vector<double>& rates,
            const ReplicateRequest& request) {
  const auto hosts = static_cast<std::size_t>(request.hosts);
  Graph graph;
  graph.nodes.reserve(hosts * host.nodes.size() + nics.size() + 1);
  graph.edges.reserve(hosts * (host.edges.size() + nics.size()) + nics.size());
  for (int h = 0; h < request.hosts; ++h) {
    const int first = static_cast<int>(graph.nodes.size());
    for (Node node : host.nodes) {
      node.host = h;
      if (h > 0) node.name = "host" + std::to_string(h) + "/" + node.name;
      graph.nodes.push_back(std::move(node));
    }
    for (Edge edge : host.edges) {
      edge.a += first;
      edge.b += first;
      graph.edges.push_back(edge);
    }
    for (PairMeasurement pair : host.pairs) {
      pair.from += first;
      pair.to += first;
      graph.pairs.push_back(pair);
    }
    for (const auto& [from, to] : host.no_access) graph.no_access.push_back({from + first, to + first});
  }
  const auto nic_of = [&](int h, std::size_t i) { return h * static_cast<int>(host.nodes.size()) + nics[i]; };
  if (request.network == NetworkShape::flat) {
    const int network = add_switch(graph, "network");
    for (int h = 0; h < request.hosts; ++h) {
      for (std::size_t i = 0; i < nics.size(); ++i)
        graph.edges.push_back(nominal_edge(nic_of(h, i), network, LinkKind::network, rates[i]));
    }
    return graph;
  }
  const int spine = nics.size() > 1 ? add_switch(graph, "spine") : -1;
  for (std::size_t i = 0; i < nics.size(); ++i) {
    const int rail = add_switch(graph, "rail" + std::to_string(i));
    for (int h = 0; h < request.hosts; ++h)
      graph.edges.push_back(nominal_edge(nic_of(h, i), rail, LinkKind::network, rates[i]));
    if (spine >= 0)
      graph.edges.push_back(nominal_edge(rail, spine, LinkKind::network, std::min(rates[i] * request.hosts, max_gb_per_s)));
  }
  return graph;
}

}  // namespace

NetworkShape network_shape_from(std::string_view name, std::string_view option) {
  if (name == "rail") return NetworkShape::rail;
  if (name == "flat") return NetworkShape::flat;
  reject(std::string(option), std::string(name), "must be rail or flat");
}

Graph replicate(const Graph& original, const ReplicateRequest& request) {
  if (request.hosts < 1) reject(hosts_key, std::to_string(request.hosts), "must be at least 1");
  if (!std::isfinite(request.nic_gb_per_s) || request.nic_gb_per_s < 0 || request.nic_gb_per_s > max_gb_per_s)
    reject("network bandwidth", std::to_string(request.nic_gb_per_s), "must be a number of GB/s, at most 1000000");
  check_host(original, std::to_string(request.hosts));
  if (request.hosts == 1) return original;
  Graph host = original;
  std::vector<int> nics = network_nics(host);
  if (nics.empty()) {
    if (request.nic_gb_per_s <= 0)
      reject("topology", "", "the host has no NICs: give a bandwidth with --network-gb-per-s to add one for each GPU");
    add_nics(host);
    nics = network_nics(host);
  }
  std::vector<double> rates;
  for (const int nic : nics) {
    Node& node = host.nodes[at(nic)];
    if (request.nic_gb_per_s > 0) node.port_gb_per_s = request.nic_gb_per_s;
    if (node.port_gb_per_s < 1e-6)
      reject("topology", node.name, "does not say the bandwidth of its ports: give it with --network-gb-per-s");
    rates.push_back(node.port_gb_per_s);
    widen_pcie(host, nic, node.port_gb_per_s);
  }
  const auto hosts = static_cast<std::size_t>(request.hosts);
  if (hosts * host.nodes.size() + nics.size() + 1 > at(max_nodes) ||
      hosts * (host.edges.size() + nics.size()) > at(max_edges)) {
    reject(hosts_key, std::to_string(request.hosts),
           "make more nodes or edges than a topology may have (" + std::to_string(max_nodes) + ", " +
               std::to_string(max_edges) + "); the host has " + std::to_string(host.nodes.size()) + " nodes");
  }

  const Graph graph = build(host, nics, rates, request);
  // The host's names may collide with those of the network.
  const std::vector<std::string> problems = problems_of(graph);
  if (!problems.empty()) reject("topology", "", problems.front());
  return graph;
}

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
