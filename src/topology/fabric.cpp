#include "topology/fabric.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/index.h"

namespace plait::topology {

Fabric::Fabric(Graph graph) : routes_(std::move(graph)) {
  channels_.reserve(2 * routes_.graph().edges.size());
  for (const Edge& edge : routes_.graph().edges) channels_.insert(channels_.end(), 2, Channel{edge.gb_per_s});
  sort_into_hosts();
}

void Fabric::sort_into_hosts() {
  const Graph& graph = routes_.graph();
  std::unordered_map<int, int> number;  // for hosts that have GPUs
  for (std::size_t gpu = 0; gpu < routes_.gpus().size(); ++gpu) {
    const int host = graph.nodes[at(routes_.gpus()[gpu])].host;
    const auto [found, added] = number.insert({host, static_cast<int>(number.size())});
    if (added) first_gpu_.push_back(static_cast<int>(gpu));
    hosts_.push_back(found->second);
  }
  first_gpu_.push_back(gpus());

  // The nodes and edges of each host, serialised for comparison.
  std::vector<std::string> shape(number.size());
  const auto write = [](std::string& text, auto value) { text.append(reinterpret_cast<const char*>(&value), sizeof value); };
  std::vector<int>& host = host_of_node_;
  host.assign(graph.nodes.size(), -1);
  std::vector<int> place(graph.nodes.size(), 0), sizes(number.size(), 0);
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    const auto found = number.find(graph.nodes[node].host);
    if (found == number.end()) continue;
    host[node] = found->second;
    place[node] = sizes[at(host[node])]++;
    write(shape[at(host[node])], graph.nodes[node].kind);
  }
  for (int node : routes_.gpus()) place_in_host_.push_back(place[at(node)]);
  edges_of_host_.resize(number.size());
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    const Edge& edge = graph.edges[i];
    const int a = host[at(edge.a)], b = host[at(edge.b)];
    const bool between = a >= 0 && b >= 0 && a != b;
    const int owner = between ? -1 : std::max(a, b);
    place_of_edge_.push_back({owner, owner < 0 ? static_cast<int>(i) : static_cast<int>(edges_of_host_[at(owner)].size())});
    if (owner >= 0) edges_of_host_[at(owner)].push_back(static_cast<int>(i));
    // Nodes elsewhere are written by their index, so an edge that joins two hosts makes them differ from any other, and from
    // each other.
    const auto describe = [&](int one) {
      std::string& text = shape[at(one)];
      write(text, a == one ? place[at(edge.a)] : -1 - edge.a);
      write(text, b == one ? place[at(edge.b)] : -1 - edge.b);
      write(text, edge.kind);
      write(text, edge.lanes);
      write(text, edge.gb_per_s);
      write(text, edge.latency_us);
      write(text, edge.bandwidth_from);
    };
    if (a >= 0) describe(a);
    if (b >= 0 && b != a) describe(b);
  }
  for (const auto& [from, to] : graph.no_access) {
    if (const int one = host[at(from)]; one >= 0) {
      write(shape[at(one)], std::int8_t{-1});  // distinct from edges, whose text is longer
      write(shape[at(one)], place[at(from)]);
      write(shape[at(one)], place[at(to)]);
    }
  }
  for (const auto& [a, b, collectives] : graph.host_pairs) {
    if (const int one = host[at(a)]; one >= 0) {
      write(shape[at(one)], collectives ? std::int8_t{-2} : std::int8_t{-3});
      write(shape[at(one)], place[at(a)]);
      write(shape[at(one)], place[at(b)]);
    }
  }
  std::map<std::string_view, int> known;
  for (const std::string& text : shape) shapes_.push_back(known.insert({text, static_cast<int>(known.size())}).first->second);
  shape_count_ = static_cast<int>(known.size());
}

std::size_t Fabric::PatternHash::operator()(const PatternKey& key) const {
  std::uint64_t hash = 0;
  for (int part : key) hash = (hash ^ static_cast<std::uint64_t>(static_cast<unsigned>(part))) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::size_t>(hash ^ (hash >> 32));
}

bool Fabric::is_by_host(int from_gpu, int to_gpu, bool of_message) const {
  const auto nodes = std::minmax(routes_.gpus()[at(from_gpu)], routes_.gpus()[at(to_gpu)]);
  const std::vector<HostPair>& pairs = graph().host_pairs;
  const auto pair = std::lower_bound(pairs.begin(), pairs.end(), nodes, [](const HostPair& p, const auto& n) {
    return std::pair(p.a, p.b) < std::pair<int, int>(n);
  });
  return pair != pairs.end() && pair->a == nodes.first && pair->b == nodes.second && (of_message || pair->collectives);
}

Fabric::Pattern Fabric::find_pattern(int from_gpu, int to_gpu, bool by_host) const {
  const int a = routes_.gpus()[at(from_gpu)], b = routes_.gpus()[at(to_gpu)];
  Path path = by_host ? routes_.host_path(a, b) : Path{};
  if (path.hops.empty()) path = routes_.path(a, b);
  Pattern pattern;
  pattern.summary = routes_.summary_of(a, path);
  const Graph& graph = routes_.graph();
  for (const Hop& hop : path.hops) {
    const Edge& along = graph.edges[at(hop.edge)];
    const int near = hop.reversed ? along.b : along.a, far = hop.reversed ? along.a : along.b;
    const int index = static_cast<int>(pattern.edges.size());
    if (pattern.exit < 0 && graph.nodes[at(far)].host != graph.nodes[at(a)].host) pattern.exit = index;
    if (pattern.exit >= 0 && graph.nodes[at(near)].host != graph.nodes[at(b)].host) pattern.entry = index;
    const auto [host, edge] = place_of_edge_[at(hop.edge)];
    pattern.edges.push_back({host < 0 ? 2 : host == host_of(from_gpu) ? 0 : 1, edge, hop.reversed});
  }
  return pattern;
}

const Node& Fabric::gpu(int number) const { return routes_.graph().nodes[at(routes_.gpus().at(at(number)))]; }

std::string Fabric::channel_name(int channel) const {
  const Edge& edge = routes_.graph().edges.at(at(channel / 2));
  const bool reversed = channel % 2 == 1;
  const Node& from = routes_.graph().nodes[at(reversed ? edge.b : edge.a)];
  const Node& to = routes_.graph().nodes[at(reversed ? edge.a : edge.b)];
  return from.name + " to " + to.name + ", " + to_string(edge.kind);
}

const Way& Fabric::way(int from, int to, bool of_message) {
  require(from >= 0 && from < gpus() && to >= 0 && to < gpus(), "Fabric::way: no such GPU");
  const std::uint64_t key = (static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint64_t>(to);
  std::unordered_map<std::uint64_t, Way>& ways = of_message ? message_ways_ : ways_;
  const auto found = ways.find(key);
  if (found != ways.end()) return found->second;
  Way way;
  if (from != to) {
    const int first = host_of(from), last = host_of(to);
    const bool by_host = is_by_host(from, to, of_message);
    const PatternKey kind = {shape_of(first),          shape_of(last),         first == last ? 1 : 0,
                             place_in_host_[at(from)], place_in_host_[at(to)], by_host ? 1 : 0};
    auto pattern = patterns_.find(kind);
    if (pattern == patterns_.end()) pattern = patterns_.emplace(kind, find_pattern(from, to, by_host)).first;
    way.channels.reserve(pattern->second.edges.size());
    for (const GraphEdge& part : pattern->second.edges) {
      const int edge = part.of == 2 ? part.edge : edges_of_host_[at(part.of == 0 ? first : last)][at(part.edge)];
      way.channels.push_back(2 * edge + (part.reversed ? 1 : 0));
    }
    if (pattern->second.exit >= 0) {
      way.exit_channel = way.channels[at(pattern->second.exit)];
      way.entry_channel = way.channels[at(pattern->second.entry)];
    }
    const PairSummary& summary = pattern->second.summary;
    // A measurement of the pair did not go through host memory.
    const PairMeasurement* pair = by_host ? nullptr : routes_.measurement(routes_.gpus()[at(from)], routes_.gpus()[at(to)]);
    way.gb_per_s = pair ? pair->gb_per_s : summary.gb_per_s;
    way.latency_us = pair ? pair->latency_us : summary.latency_us;
    way.link = summary.link;
    way.bandwidth_from = pair ? Origin::measured : summary.bandwidth_from;
  }
  return ways.emplace(key, std::move(way)).first->second;
}

Network network_of(Fabric& fabric) {
  Network network{
      .channels = fabric.channels(),
      .host_of = {},
      .way = [&fabric](int from, int to) -> const Way& { return fabric.way(from, to); },
      .message_way = [&fabric](int from, int to) -> const Way& { return fabric.message_way(from, to); },
  };
  for (int gpu = 0; gpu < fabric.gpus(); ++gpu) network.host_of.push_back(fabric.gpu(gpu).host);
  return network;
}

}  // namespace plait::topology
