#include "topology/describe.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/format.h"
#include "core/index.h"
#include "core/units.h"
#include "topology/routes.h"

namespace plait::topology {
namespace {

using Table = std::vector<std::vector<std::string>>;

// Draws columns two spaces apart: the first aligned left, the others right if `right`. A table wider than `width` (0: no limit)
// is cut into tables that each repeat the first column.
std::string aligned(const Table& table, bool right, int width) {
  std::vector<std::size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (std::size_t first = 1; first < std::max<std::size_t>(widths.size(), 2);) {
    std::size_t end = first, used = widths.empty() ? 0 : widths[0];
    while (end < widths.size() && (width == 0 || end == first || used + 2 + widths[end] <= static_cast<std::size_t>(width)))
      used += 2 + widths[end++];
    if (first > 1) text += "\n";
    for (const auto& row : table) {
      std::string line = fmt::format("{:<{}}", row.at(0), widths[0]);
      for (std::size_t c = first; c < std::min(end, row.size()); ++c)
        line += right ? fmt::format("  {:>{}}", row[c], widths[c]) : fmt::format("  {:<{}}", row[c], widths[c]);
      line.resize(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    first = std::max(end, first + 1);
  }
  return text;
}

std::string label(const Node& node) { return node.kind == NodeKind::gpu ? "GPU" + std::to_string(node.index) : node.name; }

std::vector<int> nics_of(const Graph& host) {
  std::vector<int> nics;
  for (std::size_t i = 0; i < host.nodes.size(); ++i) {
    if (host.nodes[i].kind == NodeKind::nic) nics.push_back(static_cast<int>(i));
  }
  return nics;
}

// The ways over PCIe and between sockets from one device to all others, ignoring any other links; routes.h only knows ways
// between GPUs. Fewest edges first.
class PcieWays {
 public:
  explicit PcieWays(const Graph& graph) : graph_(graph), edges_(graph.nodes.size()) {
    for (std::size_t e = 0; e < graph.edges.size(); ++e) {
      const Edge& edge = graph.edges[e];
      if (edge.kind != LinkKind::pcie && edge.kind != LinkKind::pcie_peer && edge.kind != LinkKind::smp) continue;
      edges_[at(edge.a)].push_back(static_cast<int>(e));
      edges_[at(edge.b)].push_back(static_cast<int>(e));
    }
  }

  void start_from(int device) {
    from_ = device;
    arrived_by_.assign(graph_.nodes.size(), -1);
    std::vector<int> open = {device};
    for (std::size_t i = 0; i < open.size(); ++i) {
      const NodeKind kind = graph_.nodes[at(open[i])].kind;
      if (open[i] != device && (kind == NodeKind::gpu || kind == NodeKind::nic)) continue;
      for (const int e : edges_[at(open[i])]) {
        const Edge& edge = graph_.edges[at(e)];
        const int to = edge.a == open[i] ? edge.b : edge.a;
        if (to == device || arrived_by_[at(to)] >= 0) continue;
        arrived_by_[at(to)] = e;
        open.push_back(to);
      }
    }
  }

  std::string name_to(int to) const {
    int switches = 0, bridges = 0;
    bool numa = false;
    if (arrived_by_[at(to)] < 0) return "-";
    for (int node = to; node != from_;) {
      const Edge& edge = graph_.edges[at(arrived_by_[at(node)])];
      if (edge.kind == LinkKind::smp) return "SYS";
      node = edge.a == node ? edge.b : edge.a;
      const NodeKind kind = graph_.nodes[at(node)].kind;
      numa = numa || kind == NodeKind::numa;
      switches += kind == NodeKind::pcie_switch;
      bridges += kind == NodeKind::host_bridge;
    }
    if (numa) return bridges > 1 ? "NODE" : "PHB";
    return bridges > 0 ? "PHB" : switches > 1 ? "PXB" : "PIX";
  }

 private:
  const Graph& graph_;
  std::vector<std::vector<int>> edges_;  // by node
  std::vector<int> arrived_by_;          // the edge that leads to each node
  int from_ = 0;
};

std::string legend(const std::set<std::string>& used) {
  const std::pair<const char*, const char*> meanings[] = {
      {"NVS", "lanes of each GPU to NVSwitches"},
      {"NV", "NVLink lanes between the two"},
      {"XGMI", "xGMI links between the two"},
      {"C2C", "NVLink-C2C by way of the CPU"},
      {"PIX", "at most one PCIe switch"},
      {"PXB", "several PCIe switches, no host bridge"},
      {"PHB", "a PCIe host bridge"},
      {"NODE", "host bridges of one NUMA node"},
      {"SYS", "between NUMA nodes"},
      {"NET", "the network"},
      {"none", "no way is known"},
      {"-", "no PCIe path is known"},
  };
  std::string text;
  for (const auto& [name, meaning] : meanings) {
    const std::string prefix = name;
    const bool counted = prefix == "NVS" || prefix == "NV" || prefix == "XGMI";
    const bool is_used = std::any_of(used.begin(), used.end(), [&](const std::string& link) {
      return counted ? link.starts_with(prefix) && link.size() > prefix.size() && link[prefix.size()] >= '0' &&
                           link[prefix.size()] <= '9'
                     : link == prefix;
    });
    if (is_used) text += fmt::format("  {:<5} {}\n", prefix + (counted ? "#" : ""), meaning);
  }
  return text;
}

char mark(Origin origin) { return origin == Origin::nominal ? '\0' : origin == Origin::imported ? 'i' : 'm'; }

// Draws one figure for each pair, and explains its marks.
template <typename Figure>
std::string draw_figures(const Graph& host, const std::string& title, int width, Figure figure) {
  const std::vector<int> gpus = gpus_of(host);
  if (gpus.size() < 2) return "";
  const Routes routes(host);
  Table table(1);
  table[0].push_back("");
  std::set<Origin> origins;
  for (const int to : gpus) table[0].push_back(label(host.nodes[at(to)]));
  for (const int from : gpus) {
    const std::vector<Path> paths = routes.paths_from(from);
    table.push_back({label(host.nodes[at(from)])});
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (gpus[i] == from) {
        table.back().push_back("X");
        continue;
      }
      const auto [value, origin] = figure(routes.summary(from, gpus[i], paths[i]));
      origins.insert(origin);
      std::string text = value < 0 ? "-" : fmt::format("{:.1f}", value);
      if (value >= 0 && mark(origin) != '\0') text += mark(origin);
      table.back().push_back(text);
    }
  }
  std::string meaning;
  for (const Origin origin : origins) {
    meaning += meaning.empty() ? "" : ", ";
    meaning += to_string(origin) + (mark(origin) != '\0' ? std::string(" (") + mark(origin) + ")" : "");
  }
  return title + ": " + meaning + "\n" + aligned(table, true, width);
}

std::string list_of(const Graph& host, const std::vector<int>& group) {
  std::string text;
  for (const int member : group) text += (text.empty() ? "" : " ") + label(host.nodes[at(member)]);
  return text;
}

// For each node the NUMA node above it in the PCIe tree, or -1. It uses the tree, because numbers are not always known.
std::vector<int> numa_homes(const Graph& host) {
  std::vector<std::vector<int>> below(host.nodes.size());
  for (const Edge& edge : host.edges) {
    if (edge.kind != LinkKind::pcie) continue;
    below[at(edge.a)].push_back(edge.b);
    below[at(edge.b)].push_back(edge.a);
  }
  std::vector<int> homes(host.nodes.size(), -1), open;
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    if (host.nodes[n].kind != NodeKind::numa) continue;
    homes[n] = static_cast<int>(n);
    open.push_back(static_cast<int>(n));
  }
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (const int node : below[at(open[i])]) {
      if (homes[at(node)] >= 0) continue;
      homes[at(node)] = homes[at(open[i])];
      open.push_back(node);
    }
  }
  return homes;
}

// Describes how messages travel between GPUs without peer access (comm.p2p).
std::string describe_relays(const Graph& graph) {
  const Routes routes(graph);
  std::map<std::string, std::string> pairs;  // by the way
  std::set<std::pair<int, int>> seen;
  for (const auto& [from, to] : graph.no_access) {
    if (!seen.insert(std::minmax(from, to)).second) continue;
    const int by = routes.relay_between(from, to);
    const std::string way =
        by < 0 ? "host memory"
               : fmt::format("relay by {}, {:.1f} GB/s", label(graph.nodes[at(by)]), routes.path(from, to).gb_per_s);
    pairs[way] += " " + label(graph.nodes[at(from)]) + "-" + label(graph.nodes[at(to)]);
  }
  std::string text;
  for (const auto& [way, list] : pairs) text += "  " + way + ":" + list + "\n";
  return text;
}

}  // namespace

std::string draw_matrix(const Graph& host, const Machine& machine, int width) {
  const std::vector<int> gpus = gpus_of(host), nics = nics_of(host);
  if (gpus.empty()) return "";
  const Routes routes(host);
  PcieWays ways(host);
  std::vector<int> devices = gpus;
  devices.insert(devices.end(), nics.begin(), nics.end());
  const auto title = [&](std::size_t i) {
    return i < gpus.size() ? label(host.nodes[at(devices[i])]) : "NIC" + std::to_string(i - gpus.size());
  };
  Table table(1);
  table[0].push_back("");
  for (std::size_t i = 0; i < devices.size(); ++i) table[0].push_back(title(i));
  table[0].insert(table[0].end(), {"CPU Affinity", "NUMA Affinity"});
  std::set<std::string> used;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    table.push_back({title(i)});
    ways.start_from(devices[i]);
    const std::vector<Path> paths = i < gpus.size() ? routes.direct_paths_from(devices[i]) : std::vector<Path>();
    for (std::size_t j = 0; j < devices.size(); ++j) {
      std::string link = i == j                               ? "X"
                         : i < gpus.size() && j < gpus.size() ? routes.summary(devices[i], devices[j], paths[j]).link
                                                              : ways.name_to(devices[j]);
      if (i != j) used.insert(link);
      table.back().push_back(std::move(link));
    }
    const Node& device = host.nodes[at(devices[i])];
    const auto cpus =
        std::find_if(machine.cpus.begin(), machine.cpus.end(), [&](const NumaCpus& c) { return c.numa == device.numa; });
    table.back().push_back(cpus == machine.cpus.end() || cpus->cpus.empty() ? "N/A" : cpus->cpus);
    table.back().push_back(device.numa < 0 ? "N/A" : std::to_string(device.numa));
  }
  std::string text = aligned(table, false, width) + "\n";
  for (std::size_t i = 0; i < nics.size(); ++i) {
    const Node& nic = host.nodes[at(nics[i])];
    text += fmt::format("  NIC{} {}{}\n", i, nic.name,
                        nic.port_gb_per_s > 0 ? fmt::format(", {:.4g} GB/s", nic.port_gb_per_s) : ", speed not known");
  }
  return text + legend(used);
}

std::string draw_bandwidths(const Graph& host, int width) {
  return draw_figures(host, "GB/s in one direction", width, [](const PairSummary& pair) {
    return std::pair(pair.gb_per_s > 0 ? pair.gb_per_s : -1, pair.bandwidth_from);
  });
}

std::string draw_latencies(const Graph& host, int width) {
  return draw_figures(host, "Latency in microseconds, one way", width, [](const PairSummary& pair) {
    return std::pair(pair.gb_per_s > 0 ? pair.latency_us : -1, pair.latency_from);
  });
}

std::string describe_nvlinks(const Graph& host) {
  std::map<std::string, std::vector<std::string>> pairs;  // by lanes
  for (const Edge& edge : host.edges) {
    const Node &a = host.nodes[at(edge.a)], &b = host.nodes[at(edge.b)];
    const bool direct = edge.kind == LinkKind::nvlink || edge.kind == LinkKind::xgmi;
    if (!direct || a.kind != NodeKind::gpu || b.kind != NodeKind::gpu) continue;
    const std::string name = fmt::format("{}{} ({:.4g} GB/s {})", edge.kind == LinkKind::xgmi ? "XGMI" : "NV", edge.lanes,
                                         edge.gb_per_s, to_string(edge.bandwidth_from));
    pairs[name].push_back(a.index < b.index ? label(a) + "-" + label(b) : label(b) + "-" + label(a));
  }
  const auto cliques = nvlink_cliques(host);
  if (cliques.empty()) return "NVLink: none\n";
  std::string text = "NVLink\n";
  for (const auto& [name, list] : pairs) {
    text += "  pairs " + name + ":";
    for (const std::string& pair : list) text += " " + pair;
    text += "\n";
  }
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    if (host.nodes[n].kind != NodeKind::nvswitch) continue;
    std::map<std::string, std::vector<int>> members;
    for (const Edge& edge : host.edges) {
      if (edge.a != static_cast<int>(n) && edge.b != static_cast<int>(n)) continue;
      const int other = edge.a == static_cast<int>(n) ? edge.b : edge.a;
      if (host.nodes[at(other)].kind == NodeKind::gpu)
        members[fmt::format("{} lanes each ({:.4g} GB/s {})", edge.lanes, edge.gb_per_s, to_string(edge.bandwidth_from))]
            .push_back(other);
    }
    for (const auto& [lanes, gpus] : members)
      text += fmt::format("  switch {}, {}: {}\n", host.nodes[n].name, lanes, list_of(host, gpus));
  }
  for (const std::vector<int>& clique : cliques) {
    if (clique.size() > 2) text += "  all linked to each other: " + list_of(host, clique) + "\n";
  }
  const auto components = nvlink_components(host);
  for (const std::vector<int>& component : components) {
    if (component.size() == 1) text += "  without NVLink: " + list_of(host, component) + "\n";
  }
  return text;
}

std::string describe_numa_nodes(const Graph& host, const Machine& machine) {
  const std::vector<int> homes = numa_homes(host);
  std::string text = "NUMA nodes\n";
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    const Node& numa = host.nodes[n];
    if (numa.kind != NodeKind::numa) continue;
    std::string gpus, nics;
    for (std::size_t i = 0; i < host.nodes.size(); ++i) {
      if (homes[i] != static_cast<int>(n)) continue;
      if (host.nodes[i].kind == NodeKind::gpu) gpus += " " + label(host.nodes[i]);
      if (host.nodes[i].kind == NodeKind::nic) nics += " " + host.nodes[i].name;
    }
    const auto cpus =
        std::find_if(machine.cpus.begin(), machine.cpus.end(), [&](const NumaCpus& c) { return c.numa == numa.numa; });
    text += "  " + (numa.numa < 0 ? numa.name : std::to_string(numa.numa)) + ":";
    if (cpus != machine.cpus.end() && !cpus->cpus.empty()) {
      text += fmt::format(" CPUs {} ({})", cpus->cpus, count_cpus(cpus->cpus));
      if (cpus->memory_bytes > 0) text += ", " + format_gib(static_cast<double>(cpus->memory_bytes), 0);
      text += ";";
    }
    text += (gpus.empty() ? " no GPU" : gpus) + (nics.empty() ? "" : ";" + nics) + "\n";
  }
  return text;
}

std::string describe_gpus(const Graph& host, const Machine& machine) {
  std::vector<std::pair<std::string, std::vector<const Node*>>> alike;  // equal ones, one after the other
  for (const GpuFacts& gpu : machine.gpus) {
    std::vector<std::string> facts;
    if (!gpu.name.empty()) facts.push_back(gpu.name);
    if (gpu.memory_bytes > 0) facts.push_back(fmt::format("{:.1f} GiB", static_cast<double>(gpu.memory_bytes) / gib));
    if (gpu.multiprocessors > 0) facts.push_back(fmt::format("{} SMs", gpu.multiprocessors));
    const std::string text = fmt::format("{}", fmt::join(facts, ", "));
    if (alike.empty() || alike.back().first != text) alike.push_back({text, {}});
    alike.back().second.push_back(&host.nodes[at(gpu.node)]);
  }
  if (alike.empty()) return "";
  std::string text = "GPUs\n";
  for (const auto& [facts, gpus] : alike) {
    text += "  " + label(*gpus.front());
    if (gpus.size() > 1) text += " to " + label(*gpus.back());
    text += "  " + facts + "\n";
  }
  return text;
}

std::string describe_peers(const Graph& host, const Machine& machine) {
  if (machine.peers.empty()) return "";
  struct PairList {
    int pairs = 0;
    std::string list;
  };
  std::map<std::pair<PeerAccess, std::string>, PairList> groups;
  std::map<int, int> atomics, ranks;
  for (const PeerStatus& peer : machine.peers) {
    PairList& group = groups[{peer.access, peer.why}];
    if (++group.pairs <= 16) group.list += " " + label(host.nodes[at(peer.from)]) + "->" + label(host.nodes[at(peer.to)]);
    ++atomics[peer.native_atomics];
    ++ranks[peer.performance_rank];
  }
  std::string text = "Peer-to-peer access\n";
  for (const auto& [kind, group] : groups) {
    const auto& [access, why] = kind;
    const bool all = group.pairs == static_cast<int>(machine.peers.size());
    text +=
        fmt::format("  {}: {}{}\n", access == PeerAccess::unknown ? "not known" : to_string(access),
                    all ? fmt::format("all {} pairs", group.pairs) : group.list.substr(1) + (group.pairs > 16 ? " ..." : ""),
                    why.empty() ? "" : "; " + why);
  }
  text += describe_relays(host);
  if (!atomics.contains(-1)) {
    text += fmt::format("  native atomics: {} of {} pairs; performance rank", atomics[1], machine.peers.size());
    for (const auto& [rank, count] : ranks) text += fmt::format(" {} ({} pairs)", rank, count);
    text += "\n";
  }
  return text;
}

std::string describe_findings(const Machine& machine) {
  if (machine.findings.empty()) return "";
  std::string text = "Settings\n";
  for (const Finding& finding : machine.findings) {
    text += "  " + finding.about + ": " + finding.value + "\n";
    if (!finding.effect.empty()) text += "    " + finding.effect + "\n";
  }
  return text;
}

}  // namespace plait::topology
