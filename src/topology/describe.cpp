#include "topology/describe.h"

#include <spdlog/fmt/fmt.h>

#include <map>
#include <set>

#include "core/index.h"
#include "topology/routes.h"

namespace plait::topology {
namespace {

constexpr std::size_t most_drawn = 64;  // devices in a matrix

std::map<int, Graph> split(const Graph& graph) {
  std::map<int, Graph> hosts;
  std::vector<int> local(graph.nodes.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].host < 0) continue;
    Graph& host = hosts[graph.nodes[i].host];
    local[i] = static_cast<int>(host.nodes.size());
    host.nodes.push_back(graph.nodes[i]);
  }
  const auto inside = [&](int a, int b) {
    return local[at(a)] >= 0 && local[at(b)] >= 0 && graph.nodes[at(a)].host == graph.nodes[at(b)].host;
  };
  // An NVSwitch that joins hosts belongs to each of them.
  std::map<std::pair<int, int>, int> shared;
  const auto shared_switch = [&](int number, int node) {
    const auto found = shared.find({number, node});
    if (found != shared.end()) return found->second;
    Graph& host = hosts[number];
    host.nodes.push_back(graph.nodes[at(node)]);
    return shared[{number, node}] = static_cast<int>(host.nodes.size()) - 1;
  };
  for (Edge edge : graph.edges) {
    for (const bool swapped : {false, true}) {
      const int end = swapped ? edge.b : edge.a, other = swapped ? edge.a : edge.b;
      if (local[at(end)] < 0 || graph.nodes[at(other)].host >= 0 || graph.nodes[at(other)].kind != NodeKind::nvswitch) continue;
      Edge copy = edge;
      copy.a = local[at(end)];
      copy.b = shared_switch(graph.nodes[at(end)].host, other);
      hosts[graph.nodes[at(end)].host].edges.push_back(copy);
    }
    if (!inside(edge.a, edge.b)) continue;
    Graph& host = hosts[graph.nodes[at(edge.a)].host];
    edge.a = local[at(edge.a)];
    edge.b = local[at(edge.b)];
    host.edges.push_back(edge);
  }
  for (const auto& [from, to] : graph.no_access)
    hosts[graph.nodes[at(from)].host].no_access.push_back({local[at(from)], local[at(to)]});
  for (PairMeasurement pair : graph.pairs) {
    if (!inside(pair.from, pair.to)) continue;
    Graph& host = hosts[graph.nodes[at(pair.from)].host];
    pair.from = local[at(pair.from)];
    pair.to = local[at(pair.to)];
    host.pairs.push_back(pair);
  }
  return hosts;
}

// A text that is equal for hosts that are drawn once. It leaves out addresses and names of switches, which are not drawn.
std::string likeness(const Graph& host) {
  std::string text;
  for (const Node& node : host.nodes)
    text += fmt::format("{} {} {} {} {};", static_cast<int>(node.kind), node.index, node.numa, node.model, node.port_gb_per_s);
  for (const Edge& edge : host.edges) {
    text += fmt::format("{} {} {} {} {} {} {} {};", edge.a, edge.b, static_cast<int>(edge.kind), edge.lanes, edge.gb_per_s,
                        edge.latency_us, static_cast<int>(edge.bandwidth_from), static_cast<int>(edge.latency_from));
  }
  for (const auto& [from, to] : host.no_access) text += fmt::format("no {} {};", from, to);
  for (const PairMeasurement& pair : host.pairs)
    text += fmt::format("{} {} {} {};", pair.from, pair.to, pair.gb_per_s, pair.latency_us);
  return text;
}

std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

// Describes the network's switches, and the way to the first GPUs of another host.
std::string describe_network(const Graph& graph) {
  std::map<std::string, std::pair<int, double>> switches;  // NIC ports and their sum
  for (const Edge& edge : graph.edges) {
    if (edge.kind != LinkKind::network) continue;
    for (const auto& [end, other] : {std::pair(edge.a, edge.b), std::pair(edge.b, edge.a)}) {
      if (graph.nodes[at(end)].kind != NodeKind::network || graph.nodes[at(other)].kind != NodeKind::nic) continue;
      auto& [ports, sum] = switches[graph.nodes[at(end)].name];
      ++ports;
      sum += edge.gb_per_s;
    }
  }
  std::string text = "Network\n";
  int listed = 0;
  for (const auto& [name, ports] : switches) {
    if (++listed <= 16) text += fmt::format("  {}: {} NICs, {:.7g} GB/s in all\n", name, ports.first, ports.second);
  }
  if (listed > 16) text += fmt::format("  and {} more\n", listed - 16);
  const Routes routes(graph);
  const std::vector<int>& gpus = routes.gpus();
  const int first = gpus.front(), home = graph.nodes[at(first)].host;
  std::set<int> shown;
  for (const int to : gpus) {
    const Node& gpu = graph.nodes[at(to)];
    if (gpu.host == home || shown.size() == 2) continue;
    shown.insert(to);
    const PairSummary pair = routes.summary(first, to);
    text += fmt::format("  {} to {}: {} {:.4g} GB/s ({}), {:.2f} us ({})\n", graph.nodes[at(first)].name, gpu.name, pair.link,
                        pair.gb_per_s, to_string(pair.bandwidth_from), pair.latency_us, to_string(pair.latency_from));
  }
  return text;
}

std::string describe_host(const Graph& host, const Machine& machine, int width) {
  std::string text;
  const bool has_gpus = !gpus_of(host).empty();
  std::size_t devices = 0;
  for (const Node& node : host.nodes) devices += node.kind == NodeKind::gpu || node.kind == NodeKind::nic;
  if (devices > most_drawn) return fmt::format("  {} GPUs and NICs: too many to draw; see --json\n", devices);
  if (has_gpus) text += draw_matrix(host, machine, width) + "\n" + describe_nvlinks(host) + "\n";
  text += describe_numa_nodes(host, machine);
  if (!has_gpus) return text;
  const std::string bandwidths = draw_bandwidths(host, width);
  if (!bandwidths.empty()) text += "\n" + bandwidths;
  bool told = !host.pairs.empty();
  for (const Edge& edge : host.edges) told = told || edge.latency_from != Origin::nominal;
  if (told) text += "\n" + draw_latencies(host, width);
  return text;
}

}  // namespace

std::string describe(const std::string& origin, const Graph& graph, const Machine& machine,
                     const std::vector<ImportWarning>& warnings, int width) {
  std::string text = origin + "\n";
  const std::map<int, Graph> hosts = split(graph);
  std::map<std::string, std::vector<int>> alike;
  std::vector<std::string> order;
  for (const auto& [number, host] : hosts) {
    const std::string like = likeness(host);
    std::vector<int>& same = alike[like];
    if (same.empty()) order.push_back(like);
    same.push_back(number);
  }
  constexpr std::size_t most_kinds = 8;
  for (std::size_t k = 0; k < order.size() && k < most_kinds; ++k) {
    const std::vector<int>& same = alike.at(order[k]);
    text += "\n";
    if (hosts.size() > 1) text += fmt::format("{} {}\n", same.size() > 1 ? "Hosts" : "Host", ranges(same));
    text += describe_host(hosts.at(same.front()), machine, width);
  }
  if (order.size() > most_kinds) text += fmt::format("\nand {} more kinds of hosts\n", order.size() - most_kinds);
  if (hosts.size() > 1 && !gpus_of(graph).empty()) text += "\n" + describe_network(graph);
  for (const std::string& part : {describe_gpus(graph, machine), describe_peers(graph, machine), describe_findings(machine)}) {
    if (!part.empty()) text += "\n" + part;
  }
  if (!warnings.empty()) text += "\nWarnings\n";
  for (const ImportWarning& warning : warnings) text += fmt::format("  line {}: {}\n", warning.line, warning.message);
  return text;
}

}  // namespace plait::topology
