#include "topology/graph.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/utf8.h"

namespace plait::topology {
namespace {

bool in_range(double value, double low, double high) { return std::isfinite(value) && value >= low && value <= high; }

bool joins_gpus(LinkKind kind) { return kind == LinkKind::nvlink || kind == LinkKind::xgmi; }

// For each GPU the GPUs, counted as in gpus_of, with which it shares a link or a switch.
std::vector<std::set<int>> fast_neighbours(const Graph& graph, const std::vector<int>& gpus) {
  std::vector<int> number(graph.nodes.size(), -1);
  for (std::size_t i = 0; i < gpus.size(); ++i) number[static_cast<std::size_t>(gpus[i])] = static_cast<int>(i);
  std::vector<std::set<int>> neighbours(gpus.size());
  std::vector<std::vector<int>> at_switch(graph.nodes.size());
  for (const Edge& edge : graph.edges) {
    if (!joins_gpus(edge.kind)) continue;
    const int a = number[static_cast<std::size_t>(edge.a)], b = number[static_cast<std::size_t>(edge.b)];
    if (a >= 0 && b >= 0) {
      neighbours[static_cast<std::size_t>(a)].insert(b);
      neighbours[static_cast<std::size_t>(b)].insert(a);
    } else if (a >= 0 || b >= 0) {
      const int other = a >= 0 ? edge.b : edge.a;
      if (graph.nodes[static_cast<std::size_t>(other)].kind == NodeKind::nvswitch)
        at_switch[static_cast<std::size_t>(other)].push_back(std::max(a, b));
    }
  }
  for (const std::vector<int>& members : at_switch) {
    for (int a : members) {
      for (int b : members) {
        if (a != b) neighbours[static_cast<std::size_t>(a)].insert(b);
      }
    }
  }
  return neighbours;
}

// Bron and Kerbosch (1973) with Tomita's pivot: linear in depth for one complete group, which is the usual case.
struct CliqueSearch {
  const std::vector<std::set<int>>& neighbours;
  std::vector<std::vector<int>> found = {};
  std::vector<int> clique = {};

  std::vector<int> common(const std::vector<int>& of, int with) const {
    std::vector<int> both;
    const std::set<int>& others = neighbours[static_cast<std::size_t>(with)];
    std::copy_if(of.begin(), of.end(), std::back_inserter(both), [&](int v) { return others.contains(v); });
    return both;
  }

  void extend(std::vector<int> candidates, std::vector<int> excluded) {
    if (candidates.empty()) {
      if (excluded.empty() && clique.size() > 1) found.push_back(clique);
      return;
    }
    int pivot = candidates.front();
    std::size_t most = 0;
    for (const std::vector<int>* set : {&candidates, &excluded}) {
      for (int v : *set) {
        const std::size_t size = common(candidates, v).size();
        if (size > most) std::tie(most, pivot) = std::tuple(size, v);
        if (most + 1 >= candidates.size()) break;
      }
    }
    const std::set<int>& covered = neighbours[static_cast<std::size_t>(pivot)];
    for (int v : std::vector<int>(candidates)) {
      if (covered.contains(v)) continue;
      clique.push_back(v);
      extend(common(candidates, v), common(excluded, v));
      clique.pop_back();
      std::erase(candidates, v);
      excluded.push_back(v);
    }
  }
};

std::vector<std::vector<int>> as_nodes(std::vector<std::vector<int>> groups, const std::vector<int>& gpus) {
  for (std::vector<int>& group : groups) std::sort(group.begin(), group.end());
  std::sort(groups.begin(), groups.end());
  for (std::vector<int>& group : groups) {
    for (int& member : group) member = gpus[static_cast<std::size_t>(member)];
  }
  return groups;
}

}  // namespace

std::vector<std::string> problems_of(const Graph& graph) {
  std::vector<std::string> problems;
  std::set<std::string> names;
  std::set<std::pair<int, int>> numbers;
  if (graph.nodes.size() > static_cast<std::size_t>(max_nodes))
    problems.push_back("more than " + std::to_string(max_nodes) + " nodes");
  if (graph.edges.size() > static_cast<std::size_t>(max_edges))
    problems.push_back("more than " + std::to_string(max_edges) + " edges");
  for (const Node& node : graph.nodes) {
    if (node.name.empty()) problems.push_back("a node has no name");
    for (const std::string* text : {&node.name, &node.bus_id, &node.model}) {
      if (text->size() > max_name_bytes) problems.push_back("a name or model has more than 256 bytes");
      if (first_invalid_utf8(*text)) problems.push_back("a name or model is not UTF-8");
    }
    if (node.host < -1 || node.host > max_number || node.index < -1 || node.index > max_number || node.numa < -1 ||
        node.numa > max_number)
      problems.push_back(node.name + ": a number is out of range");
    if (!names.insert(node.name).second) problems.push_back("two nodes are named '" + node.name + "'");
    if (!in_range(node.port_gb_per_s, 0, max_gb_per_s)) problems.push_back(node.name + ": a port's bandwidth is out of range");
    if (node.kind != NodeKind::gpu) continue;
    if (node.index < 0) problems.push_back(node.name + ": a GPU without a number");
    if (node.host < 0) problems.push_back(node.name + ": a GPU of no host");
    if (!numbers.insert({node.host, node.index}).second)
      problems.push_back("host " + std::to_string(node.host) + " has two GPUs " + std::to_string(node.index));
  }
  if (numbers.empty()) problems.push_back("no GPU");
  const int count = static_cast<int>(graph.nodes.size());
  const auto exists = [&](int node) { return node >= 0 && node < count; };
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    const Edge& edge = graph.edges[i];
    const std::string where = "edge " + std::to_string(i) + ": ";
    if (!exists(edge.a) || !exists(edge.b))
      problems.push_back(where + "an end is not a node");
    else if (edge.a == edge.b)
      problems.push_back(where + "joins " + graph.nodes[static_cast<std::size_t>(edge.a)].name + " to itself");
    if (!in_range(edge.gb_per_s, 1e-6, max_gb_per_s)) problems.push_back(where + "its bandwidth is out of range");
    if (!in_range(edge.latency_us, 0, max_latency_us)) problems.push_back(where + "its latency is out of range");
    if (edge.lanes < 0 || edge.lanes > max_lanes) problems.push_back(where + "its number of lanes is out of range");
  }
  std::set<std::pair<int, int>> measured;
  for (std::size_t i = 0; i < graph.pairs.size(); ++i) {
    const PairMeasurement& pair = graph.pairs[i];
    const std::string where = "pair " + std::to_string(i) + ": ";
    const auto is_gpu = [&](int node) {
      return exists(node) && graph.nodes[static_cast<std::size_t>(node)].kind == NodeKind::gpu;
    };
    if (!is_gpu(pair.from) || !is_gpu(pair.to) || pair.from == pair.to) problems.push_back(where + "its ends are not two GPUs");
    if (!measured.insert({pair.from, pair.to}).second) problems.push_back(where + "measured twice");
    if (!in_range(pair.gb_per_s, 1e-6, max_gb_per_s)) problems.push_back(where + "its bandwidth is out of range");
    if (!in_range(pair.latency_us, 0, max_latency_us)) problems.push_back(where + "its latency is out of range");
  }
  for (const auto& [from, to] : graph.no_access) {
    const auto gpu = [&](int node) {
      return exists(node) && graph.nodes[static_cast<std::size_t>(node)].kind == NodeKind::gpu;
    };
    if (!gpu(from) || !gpu(to) || from == to ||
        graph.nodes[static_cast<std::size_t>(from)].host != graph.nodes[static_cast<std::size_t>(to)].host)
      problems.push_back("a pair without peer access is not of two GPUs of one host");
  }
  if (!std::is_sorted(graph.no_access.begin(), graph.no_access.end()))
    problems.push_back("pairs without peer access are not sorted");
  return problems;
}

std::vector<int> gpus_of(const Graph& graph) {
  std::vector<int> gpus;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].kind == NodeKind::gpu) gpus.push_back(static_cast<int>(i));
  }
  const auto order = [&](int node) {
    const Node& gpu = graph.nodes[static_cast<std::size_t>(node)];
    return std::tuple(gpu.host, gpu.index, node);
  };
  std::sort(gpus.begin(), gpus.end(), [&](int x, int y) { return order(x) < order(y); });
  return gpus;
}

std::vector<std::vector<int>> nvlink_components(const Graph& graph) {
  const std::vector<int> gpus = gpus_of(graph);
  const std::vector<std::set<int>> neighbours = fast_neighbours(graph, gpus);
  std::vector<std::vector<int>> groups;
  std::vector<bool> seen(gpus.size(), false);
  for (std::size_t first = 0; first < gpus.size(); ++first) {
    if (seen[first]) continue;
    std::vector<int> group = {static_cast<int>(first)};
    seen[first] = true;
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (int other : neighbours[static_cast<std::size_t>(group[i])]) {
        if (seen[static_cast<std::size_t>(other)]) continue;
        seen[static_cast<std::size_t>(other)] = true;
        group.push_back(other);
      }
    }
    groups.push_back(std::move(group));
  }
  return as_nodes(std::move(groups), gpus);
}

std::vector<std::vector<int>> nvlink_cliques(const Graph& graph) {
  const std::vector<int> gpus = gpus_of(graph);
  const std::vector<std::set<int>> neighbours = fast_neighbours(graph, gpus);
  std::vector<int> linked;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!neighbours[i].empty()) linked.push_back(static_cast<int>(i));
  }
  CliqueSearch search{neighbours};
  search.extend(std::move(linked), {});
  return as_nodes(std::move(search.found), gpus);
}

Graph part_of(const Graph& graph, const std::function<bool(const Node&)>& keep) {
  Graph part;
  std::vector<int> number(graph.nodes.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!keep(graph.nodes[i])) continue;
    number[i] = static_cast<int>(part.nodes.size());
    part.nodes.push_back(graph.nodes[i]);
  }
  const auto moved = [&](int node) { return number[static_cast<std::size_t>(node)]; };
  for (Edge edge : graph.edges) {
    edge.a = moved(edge.a), edge.b = moved(edge.b);
    if (edge.a >= 0 && edge.b >= 0) part.edges.push_back(edge);
  }
  for (PairMeasurement pair : graph.pairs) {
    pair.from = moved(pair.from), pair.to = moved(pair.to);
    if (pair.from >= 0 && pair.to >= 0) part.pairs.push_back(pair);
  }
  for (const auto& [from, to] : graph.no_access) {
    if (moved(from) >= 0 && moved(to) >= 0) part.no_access.push_back({moved(from), moved(to)});  // their order is kept
  }
  for (HostPair pair : graph.host_pairs) {
    pair.a = moved(pair.a), pair.b = moved(pair.b);
    if (pair.a >= 0 && pair.b >= 0) part.host_pairs.push_back(pair);
  }
  return part;
}

}  // namespace plait::topology
