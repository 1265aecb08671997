#include "topology/routes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/index.h"

namespace plait::topology {
Routes::Routes(Graph graph) : graph_(std::move(graph)), gpus_(gpus_of(graph_)), steps_(graph_.nodes.size()) {
  const std::vector<std::string> problems = problems_of(graph_);
  require(problems.empty(), "a topology that cannot be: " + (problems.empty() ? "" : problems.front()));
  std::map<int, int> hosts = {{-1, 0}};
  for (const Node& node : graph_.nodes) hosts.insert({node.host, 0});
  int count = 0;
  for (auto& [host, number] : hosts) number = count++;
  host_sizes_.resize(at(count), 0);
  for (const Node& node : graph_.nodes) {
    const int host = hosts.at(node.host);
    host_of_.push_back(host);
    place_in_host_.push_back(host_sizes_[at(host)]++);
  }
  for (std::size_t i = 0; i < graph_.edges.size(); ++i) {
    const Edge& edge = graph_.edges[i];
    steps_[at(edge.a)].push_back({static_cast<int>(i), edge.b, host_of_[at(edge.b)]});
    steps_[at(edge.b)].push_back({static_cast<int>(i), edge.a, host_of_[at(edge.a)]});
  }
  for (std::vector<Neighbour>& steps : steps_) {
    std::sort(steps.begin(), steps.end(), [](const Neighbour& x, const Neighbour& y) {
      return std::tie(x.host, x.to, x.edge) < std::tie(y.host, y.to, y.edge);
    });
  }
  for (std::size_t node = 0; node < steps_.size(); ++node) {
    const std::vector<Neighbour>& steps = steps_[node];
    const auto outside = std::find_if(steps.begin(), steps.end(), [](const Neighbour& step) { return step.host > 0; });
    leaf_.push_back(host_of_[node] == 0 && (outside == steps.begin() || std::prev(outside)->to == steps.front().to));
  }
  for (std::size_t i = 0; i < graph_.pairs.size(); ++i)
    measured_.push_back({{graph_.pairs[i].from, graph_.pairs[i].to}, static_cast<int>(i)});
  std::sort(measured_.begin(), measured_.end());
}

Routes::Region Routes::all() const { return {true, 0, 0, static_cast<int>(graph_.nodes.size())}; }

Routes::Region Routes::around(int from, int to) const {
  Region region{false, host_of_[at(from)], host_of_[at(to)], 0};
  region.size =
      host_sizes_[0] + host_sizes_[at(region.host)] + (region.other == region.host ? 0 : host_sizes_[at(region.other)]);
  return region;
}

int Routes::place_in(const Region& region, int node) const {
  if (region.all) return node;
  const int host = host_of_[at(node)], place = place_in_host_[at(node)];
  if (host == 0) return place;
  return host_sizes_[0] + place + (host == region.host ? 0 : host_sizes_[at(region.host)]);
}

bool Routes::leads_to(int node, int host) const {
  const std::vector<Neighbour>& steps = steps_[at(node)];
  const auto step = std::lower_bound(steps.begin(), steps.end(), host, [](const Neighbour& s, int h) { return s.host < h; });
  return step != steps.end() && step->host == host;
}

template <class Visit>
void Routes::for_steps(const Region& region, int node, const Visit& visit) const {
  const std::vector<Neighbour>& steps = steps_[at(node)];
  if (region.all) {
    for (const Neighbour& step : steps) visit(step);
    return;
  }
  const auto of_host = [&](int host) {
    auto step = std::lower_bound(steps.begin(), steps.end(), host, [](const Neighbour& s, int h) { return s.host < h; });
    for (; step != steps.end() && step->host == host; ++step) {
      // A network has many leaf switches, and all but those of the two hosts lead nowhere.
      if (host == 0 && leaf_[at(step->to)] && !leads_to(step->to, region.host) && !leads_to(step->to, region.other)) continue;
      visit(*step);
    }
  };
  of_host(0);
  of_host(region.host);
  if (region.other != region.host) of_host(region.other);
}

bool Routes::may_cross(const Neighbour& step, int from, int source, Reach reach) const {
  const Node& here = graph_.nodes[at(from)];
  if (here.kind == NodeKind::gpu && from != source) return false;
  const LinkKind kind = graph_.edges[at(step.edge)].kind;
  if (reach == Reach::nvlink) {
    const NodeKind there = graph_.nodes[at(step.to)].kind;
    return (kind == LinkKind::nvlink || kind == LinkKind::xgmi) && (there == NodeKind::gpu || there == NodeKind::nvswitch);
  }
  if (reach == Reach::host_memory) {
    const auto is_between_gpus = [&](int node) {
      return graph_.nodes[at(node)].kind == NodeKind::gpu || graph_.nodes[at(node)].kind == NodeKind::nvswitch;
    };
    return kind != LinkKind::network && !(is_between_gpus(from) && is_between_gpus(step.to));
  }
  if (kind != LinkKind::network) return true;
  // A path leaves only the host where the data started, so no third host is on the way.
  return reach == Reach::network && (here.host < 0 || here.host == graph_.nodes[at(source)].host);
}

std::vector<double> Routes::widths_from(int source, Reach reach, const Region& region) const {
  std::vector<double> width(at(region.size), 0);
  std::priority_queue<std::pair<double, int>> open;
  width[at(place_in(region, source))] = std::numeric_limits<double>::infinity();
  open.push({std::numeric_limits<double>::infinity(), source});
  while (!open.empty()) {
    const auto [wide, node] = open.top();
    open.pop();
    if (wide < width[at(place_in(region, node))]) continue;
    for_steps(region, node, [&, wide = wide, node = node](const Neighbour& step) {
      if (!may_cross(step, node, source, reach)) return;
      const double through = std::min(wide, graph_.edges[at(step.edge)].gb_per_s);
      double& known = width[at(place_in(region, step.to))];
      if (through <= known) return;
      known = through;
      open.push({through, step.to});
    });
  }
  return width;
}

std::vector<int> Routes::shortest_from(int source, Reach reach, double width, const Region& region) const {
  using Cost = std::tuple<double, int>;  // latency, edges
  constexpr Cost unreached{std::numeric_limits<double>::infinity(), 0};
  std::vector<Cost> cost(at(region.size), unreached);
  std::vector<int> arrived_by(at(region.size), -1);
  std::priority_queue<std::pair<Cost, int>, std::vector<std::pair<Cost, int>>, std::greater<>> open;
  cost[at(place_in(region, source))] = {0, 0};
  open.push({Cost{0, 0}, source});
  while (!open.empty()) {
    const auto [so_far, node] = open.top();
    open.pop();
    if (cost[at(place_in(region, node))] < so_far) continue;
    for_steps(region, node, [&, so_far = so_far, node = node](const Neighbour& step) {
      const Edge& edge = graph_.edges[at(step.edge)];
      if (edge.gb_per_s < width || !may_cross(step, node, source, reach)) return;
      const Cost through{std::get<0>(so_far) + edge.latency_us, std::get<1>(so_far) + 1};
      Cost& known = cost[at(place_in(region, step.to))];
      if (through >= known) return;
      known = through;
      arrived_by[at(place_in(region, step.to))] = step.edge;
      open.push({through, step.to});
    });
  }
  return arrived_by;
}

Path Routes::walk_back(int source, int target, const std::vector<int>& arrived_by, const Region& region) const {
  Path path;
  path.gb_per_s = std::numeric_limits<double>::infinity();
  for (int node = target; node != source;) {
    const int index = arrived_by[at(place_in(region, node))];
    const Edge& edge = graph_.edges[at(index)];
    path.hops.push_back({index, edge.a == node});
    path.gb_per_s = std::min(path.gb_per_s, edge.gb_per_s);
    path.latency_us += edge.latency_us;
    node = edge.a == node ? edge.b : edge.a;
  }
  std::reverse(path.hops.begin(), path.hops.end());
  return path;
}

std::vector<Path> Routes::direct_paths_from(int gpu) const {
  require(gpu >= 0 && at(gpu) < graph_.nodes.size() && graph_.nodes[at(gpu)].kind == NodeKind::gpu, "paths start at GPUs");
  std::vector<Path> paths(gpus_.size());
  const Region region = all();
  for (const Reach reach : {Reach::nvlink, Reach::host, Reach::network}) {
    const std::vector<double> widths = widths_from(gpu, reach, region);
    std::set<double> different;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      if (gpus_[i] != gpu && paths[i].hops.empty() && widths[at(gpus_[i])] > 0) different.insert(widths[at(gpus_[i])]);
    }
    bool complete = true;
    std::vector<bool> done(gpus_.size(), false);
    for (std::size_t i = 0; i < gpus_.size(); ++i) done[i] = !paths[i].hops.empty();
    for (const double width : different) {
      const std::vector<int> arrived_by = shortest_from(gpu, reach, width, region);
      for (std::size_t i = 0; i < gpus_.size(); ++i) {
        if (!done[i] && gpus_[i] != gpu && widths[at(gpus_[i])] == width)
          paths[i] = walk_back(gpu, gpus_[i], arrived_by, region);
      }
    }
    for (std::size_t i = 0; i < gpus_.size(); ++i) complete = complete && (gpus_[i] == gpu || !paths[i].hops.empty());
    if (complete) break;
  }
  return paths;
}

Path Routes::direct_path(int from, int to) const {
  require(to >= 0 && at(to) < graph_.nodes.size() && graph_.nodes[at(to)].kind == NodeKind::gpu, "paths end at GPUs");
  require(from >= 0 && at(from) < graph_.nodes.size() && graph_.nodes[at(from)].kind == NodeKind::gpu, "paths start at GPUs");
  if (from == to) return {};
  const Region region = around(from, to);
  for (const Reach reach : {Reach::nvlink, Reach::host, Reach::network}) {
    if (Path path = widest_path(from, to, reach, region); !path.hops.empty()) return path;
  }
  return {};
}

Path Routes::widest_path(int from, int to, Reach reach, const Region& region) const {
  const double width = widths_from(from, reach, region)[at(place_in(region, to))];
  return width > 0 ? walk_back(from, to, shortest_from(from, reach, width, region), region) : Path{};
}

Path Routes::host_path(int from, int to) const {
  const Node& gpu = graph_.nodes[at(from)];
  require(from != to && graph_.nodes[at(to)].host == gpu.host, "host memory is between two GPUs of one host");
  const Region region = around(from, to);
  const std::vector<double> widths = widths_from(from, Reach::host_memory, region);
  int memory = -1;
  std::tuple<bool, double> best;  // the GPU's own NUMA node, then the widest way
  for (std::size_t node = 0; node < graph_.nodes.size(); ++node) {
    const Node& numa = graph_.nodes[node];
    if (numa.kind != NodeKind::numa || numa.host != gpu.host) continue;
    const double width = widths[at(place_in(region, static_cast<int>(node)))];
    const std::tuple<bool, double> rank(numa.numa >= 0 && numa.numa == gpu.numa, width);
    if (width > 0 && (memory < 0 || rank > best)) memory = static_cast<int>(node), best = rank;
  }
  if (memory < 0) return {};
  Path path = widest_path(from, memory, Reach::host_memory, region);
  const Path second = widest_path(memory, to, Reach::host_memory, region);
  if (second.hops.empty()) return {};
  path.hops.insert(path.hops.end(), second.hops.begin(), second.hops.end());
  path.gb_per_s = std::min({path.gb_per_s, second.gb_per_s, host_memory_gb_per_s});
  path.latency_us = std::max(path.latency_us + second.latency_us, host_memory_latency_us);
  path.by_host_memory = true;
  return path;
}

std::vector<Path> Routes::paths_from(int gpu) const {
  std::vector<Path> paths = direct_paths_from(gpu);
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i] != gpu && !have_access(gpu, gpus_[i])) paths[i] = path(gpu, gpus_[i]);
  }
  return paths;
}

Path Routes::path(int from, int to) const {
  if (from == to || have_access(from, to)) return direct_path(from, to);
  if (const int by = relay_between(from, to); by >= 0) return relayed(from, by, to);
  Path path = host_path(from, to);
  return path.hops.empty() ? direct_path(from, to) : path;
}

bool Routes::have_access(int from, int to) const {
  const auto lacks = [&](int a, int b) {
    return std::binary_search(graph_.no_access.begin(), graph_.no_access.end(), std::pair(a, b));
  };
  return !lacks(from, to) && !lacks(to, from);
}

int Routes::relay_between(int from, int to) const {
  if (from == to || have_access(from, to)) return -1;
  const Relays& relays = relays_of(graph_.nodes[at(from)].host);
  const auto found = relays.find(std::minmax(from, to));
  return found == relays.end() ? -1 : found->second;
}

const Routes::Relays& Routes::relays_of(int host) const {
  const auto known = relays_.find(host);
  return known != relays_.end() ? known->second : relays_.emplace(host, find_relays(host)).first->second;
}

Routes::Relays Routes::find_relays(int host) const {
  std::vector<int> gpus;
  std::copy_if(gpus_.begin(), gpus_.end(), std::back_inserter(gpus),
               [&](int gpu) { return graph_.nodes[at(gpu)].host == host; });
  std::map<std::pair<int, int>, PairSummary> ways;
  const auto way = [&](int a, int b) -> const PairSummary& {
    const auto found = ways.find({a, b});
    return found != ways.end() ? found->second : ways.emplace(std::pair(a, b), summary(a, b, direct_path(a, b))).first->second;
  };
  Relays relays;
  std::map<int, int> used;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t j = i + 1; j < gpus.size(); ++j) {
      const int a = gpus[i], b = gpus[j];
      if (have_access(a, b)) continue;
      using Rank = std::tuple<double, int, double>;  // the least is the best
      std::optional<std::pair<Rank, int>> best;
      for (const int by : gpus) {
        if (by == a || by == b || !have_access(a, by) || !have_access(by, b)) continue;
        const double width = std::min(way(a, by).gb_per_s, way(by, b).gb_per_s);
        const Rank rank{-width, used[by], way(a, by).latency_us + way(by, b).latency_us};
        if (width > 0 && (!best || rank < best->first)) best = {rank, by};
      }
      if (!best) continue;
      relays[std::minmax(a, b)] = best->second;
      ++used[best->second];
    }
  }
  return relays;
}

// Both halves run at once. In a tree such as PCIe they share no edge in one direction: one half goes to the bridge, the other
// away from it.
Path Routes::relayed(int from, int by, int to) const {
  Path path = direct_path(from, by);
  const Path second = direct_path(by, to);
  if (path.hops.empty() || second.hops.empty()) return {};
  path.hops.insert(path.hops.end(), second.hops.begin(), second.hops.end());
  path.latency_us += second.latency_us;
  path.gb_per_s = std::min(path.gb_per_s, second.gb_per_s);
  return path;
}

std::string Routes::link_name(int from, const Path& path) const {
  if (path.by_host_memory) return "host";
  int lanes = 0, switches = 0, bridges = 0;
  bool fast = true, nvswitch = false, xgmi = false, c2c = false, numa = false, smp = false;
  int node = from;
  for (const Hop& hop : path.hops) {
    const Edge& edge = graph_.edges[at(hop.edge)];
    if (edge.kind == LinkKind::network) return "NET";
    if (node != from && graph_.nodes[at(node)].kind == NodeKind::gpu) return "relay";
    node = hop.reversed ? edge.a : edge.b;
    const NodeKind kind = graph_.nodes[at(node)].kind;
    fast = fast && (edge.kind == LinkKind::nvlink || edge.kind == LinkKind::xgmi);
    lanes = lanes == 0 ? edge.lanes : std::min(lanes, edge.lanes);
    xgmi = xgmi || edge.kind == LinkKind::xgmi;
    c2c = c2c || edge.kind == LinkKind::c2c;
    smp = smp || edge.kind == LinkKind::smp;
    nvswitch = nvswitch || kind == NodeKind::nvswitch;
    numa = numa || kind == NodeKind::numa;
    switches += kind == NodeKind::pcie_switch;
    bridges += kind == NodeKind::host_bridge;
  }
  if (smp) return "SYS";
  if (fast && !numa) return (nvswitch ? "NVS" : xgmi ? "XGMI" : "NV") + std::to_string(lanes);
  if (c2c) return "C2C";
  if (numa) return bridges > 1 ? "NODE" : "PHB";
  if (bridges > 0) return "PHB";
  return switches > 1 ? "PXB" : "PIX";
}

PairSummary Routes::summary_of(int from, const Path& path) const {
  PairSummary summary;
  if (!path.hops.empty()) {
    summary.gb_per_s = path.gb_per_s;
    summary.latency_us = path.latency_us;
    summary.link = link_name(from, path);
    summary.latency_from = Origin::measured;
    bool first = true;
    for (const Hop& hop : path.hops) {
      const Edge& edge = graph_.edges[at(hop.edge)];
      summary.latency_from = std::min(summary.latency_from, edge.latency_from);
      if (edge.gb_per_s > path.gb_per_s) continue;
      summary.bandwidth_from = first ? edge.bandwidth_from : std::min(summary.bandwidth_from, edge.bandwidth_from);
      first = false;
    }
  }
  return summary;
}

const PairMeasurement* Routes::measurement(int from, int to) const {
  const auto found = std::lower_bound(measured_.begin(), measured_.end(), std::pair(std::pair(from, to), 0));
  return found != measured_.end() && found->first == std::pair(from, to) ? &graph_.pairs[at(found->second)] : nullptr;
}

PairSummary Routes::summary(int from, int to, const Path& path) const {
  PairSummary summary = summary_of(from, path);
  if (const PairMeasurement* pair = measurement(from, to)) {
    summary.gb_per_s = pair->gb_per_s;
    summary.latency_us = pair->latency_us;
    summary.bandwidth_from = summary.latency_from = Origin::measured;
  }
  return summary;
}

std::vector<LinkedPair> a_pair_of_each_link(const Graph& graph) {
  const Routes routes(graph);
  const int gpus = static_cast<int>(routes.gpus().size());
  std::set<std::string> known{"none"};
  std::vector<LinkedPair> pairs;
  for (int from = 0; from < gpus; ++from) {
    for (int to = from + 1; to < gpus; ++to) {
      const std::string link =
          routes.summary(routes.gpus()[static_cast<std::size_t>(from)], routes.gpus()[static_cast<std::size_t>(to)]).link;
      if (known.insert(link).second) pairs.push_back({link, from, to});
    }
  }
  return pairs;
}

}  // namespace plait::topology
