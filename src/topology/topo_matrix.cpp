#include "topology/importers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "topology/nominal.h"
#include "topology/topo_matrix.h"

namespace plait::topology {
namespace {

constexpr int most_lanes_of_gpu = 18;  // H100 to B200

class MatrixGraphBuilder {
 public:
  MatrixGraphBuilder(const TopoMatrix& matrix, std::vector<ImportWarning>& warnings)
      : matrix_(matrix), warnings_(warnings), count_(matrix.devices.size()) {}

  Graph build() {
    for (const MatrixDevice& device : matrix_.devices) add_device(device);
    connect_pcie();
    connect_nvlinks();
    return std::move(graph_);
  }

 private:
  using Groups = std::vector<std::size_t>;  // the first device of each device's group

  int add(NodeKind kind, std::string name, int numa) {
    Node node;
    node.kind = kind;
    node.name = std::move(name);
    node.numa = numa;
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size()) - 1;
  }

  void connect(int a, int b, LinkKind kind, double gb_per_s, int lanes = 0) {
    graph_.edges.push_back(nominal_edge(a, b, kind, gb_per_s, lanes));
  }

  void add_device(const MatrixDevice& device) {
    const bool gpu = device.gpu >= 0;
    const int index =
        add(gpu ? NodeKind::gpu : NodeKind::nic, gpu ? "gpu" + std::to_string(device.gpu) : device.name, device.numa);
    graph_.nodes[static_cast<std::size_t>(index)].index = device.gpu;
  }

  static void join(Groups& groups, std::size_t a, std::size_t b) {
    const std::size_t low = std::min(groups[a], groups[b]), high = std::max(groups[a], groups[b]);
    for (std::size_t& group : groups) group = group == high ? low : group;
  }

  Groups within(PcieLevel level, Groups groups) const {
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t j = i + 1; j < count_; ++j) {
        if (groups[i] != groups[j] && matrix_.cells[i][j].level <= level) join(groups, i, j);
      }
    }
    return groups;
  }

  // Devices joined by NVLink reveal nothing about their PCIe path; the same NUMA node, or the same cores, is the next best
  // clue.
  void join_by_affinity(Groups& groups) const {
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t j = i + 1; j < count_; ++j) {
        const MatrixDevice &one = matrix_.devices[i], &other = matrix_.devices[j];
        if (matrix_.cells[i][j].level != PcieLevel::unknown || groups[i] == groups[j]) continue;
        const bool same =
            one.numa >= 0 && other.numa >= 0 ? one.numa == other.numa : !one.cpus.empty() && one.cpus == other.cpus;
        if (same) join(groups, i, j);
      }
    }
  }

  // Paths form a tree, so two devices near a third are near each other.
  void warn_of_contradictions(const std::vector<std::pair<PcieLevel, Groups>>& levels) {
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t j = i + 1; j < count_; ++j) {
        for (const auto& [level, groups] : levels) {
          if (groups[i] != groups[j]) continue;
          if (matrix_.cells[i][j].level != PcieLevel::unknown && matrix_.cells[i][j].level > level) {
            warnings_.push_back(
                {matrix_.devices[i].line,
                 matrix_.devices[i].name + " and " + matrix_.devices[j].name +
                     " are nearer to each other through a third device than their label says: the nearer path is used"});
          }
          break;
        }
      }
    }
  }

  int numa_of(const Groups& nodes, std::size_t group) {
    int numa = -1;
    for (std::size_t i = 0; i < count_; ++i) {
      if (nodes[i] == group && matrix_.devices[i].numa >= 0 && numa < 0) numa = matrix_.devices[i].numa;
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (nodes[i] == group && matrix_.devices[i].numa >= 0 && matrix_.devices[i].numa != numa)
        warnings_.push_back(
            {matrix_.devices[i].line, matrix_.devices[i].name + ": its NUMA affinity is not that of devices of its NUMA node"});
    }
    return numa;
  }

  void connect_pcie() {
    Groups single(count_);
    std::iota(single.begin(), single.end(), std::size_t{0});
    const Groups pix = within(PcieLevel::pix, single), pxb = within(PcieLevel::pxb, pix), phb = within(PcieLevel::phb, pxb);
    Groups nodes = within(PcieLevel::node, phb);
    join_by_affinity(nodes);
    warn_of_contradictions({{PcieLevel::pix, pix}, {PcieLevel::pxb, pxb}, {PcieLevel::phb, phb}, {PcieLevel::node, nodes}});

    std::map<std::size_t, int> numa_nodes, bridges, uppers, switches;
    std::set<int> seen;
    for (std::size_t i = 0; i < count_; ++i) {
      if (numa_nodes.contains(nodes[i])) continue;
      const int numa = numa_of(nodes, nodes[i]);
      const bool named = numa >= 0 && seen.insert(numa).second;
      if (numa >= 0 && !named) {
        warnings_.push_back({matrix_.devices[i].line, matrix_.devices[i].name + " is on NUMA node " + std::to_string(numa) +
                                                          " but SYS away from others on it: treated as being on another node"});
      }
      const std::string name = named ? "numa" + std::to_string(numa) : "numa of " + matrix_.devices[i].name;
      numa_nodes[nodes[i]] = add(NodeKind::numa, name, numa);
    }
    const auto several = [&](const Groups& inner, const Groups& outer, std::size_t group) {
      std::set<std::size_t> different;
      for (std::size_t i = 0; i < count_; ++i) {
        if (outer[i] == group) different.insert(inner[i]);
      }
      return different.size() > 1;
    };
    for (std::size_t i = 0; i < count_; ++i) {
      const std::string& label = matrix_.devices[i].name;
      const int numa_node = numa_nodes.at(nodes[i]), numa = graph_.nodes[static_cast<std::size_t>(numa_node)].numa;
      const auto place = [&](std::map<std::size_t, int>& made, std::size_t group, NodeKind kind, const std::string& what,
                             int parent) {
        const auto found = made.find(group);
        if (found != made.end()) return found->second;
        const int index = add(kind, what + " of " + label, numa);
        connect(parent, index, LinkKind::pcie, pcie_gb_per_s);
        made[group] = index;
        return index;
      };
      int parent = place(bridges, phb[i], NodeKind::host_bridge, "host bridge", numa_node);
      const bool upper = several(pix, pxb, pxb[i]);
      if (upper) parent = place(uppers, pxb[i], NodeKind::pcie_switch, "upper switch", parent);
      if (upper || several(single, pix, pix[i])) parent = place(switches, pix[i], NodeKind::pcie_switch, "switch", parent);
      connect(parent, static_cast<int>(i), LinkKind::pcie, pcie_gb_per_s);
      graph_.nodes[i].numa = numa;
    }
    for (auto one = numa_nodes.begin(); one != numa_nodes.end(); ++one) {
      for (auto other = std::next(one); other != numa_nodes.end(); ++other)
        connect(one->second, other->second, LinkKind::smp, smp_gb_per_s);
    }
  }

  void connect_nvlinks() {
    Groups groups(count_);
    std::iota(groups.begin(), groups.end(), std::size_t{0});
    for (std::size_t i = 0; i < count_; ++i) {
      for (std::size_t j = i + 1; j < count_; ++j) {
        if (matrix_.cells[i][j].lanes > 0 && groups[i] != groups[j]) join(groups, i, j);
      }
    }
    for (std::size_t first = 0; first < count_; ++first) {
      if (groups[first] != first) continue;
      std::vector<std::size_t> members;
      std::set<int> lanes;
      for (std::size_t i = first; i < count_; ++i) {
        if (groups[i] == first) members.push_back(i);
      }
      for (std::size_t i : members) {
        for (std::size_t j : members) {
          if (i < j) lanes.insert(matrix_.cells[i][j].lanes);
        }
      }
      const bool switched = lanes.size() == 1 && *lanes.begin() * (static_cast<int>(members.size()) - 1) > most_lanes_of_gpu;
      if (switched && members.size() > 2)
        connect_to_switch(members, *lanes.begin());
      else
        connect_directly(members);
    }
  }

  void connect_to_switch(const std::vector<std::size_t>& members, int lanes) {
    const int index = add(NodeKind::nvswitch, "nvswitch of " + matrix_.devices[members.front()].name, -1);
    for (std::size_t i : members) connect(static_cast<int>(i), index, LinkKind::nvlink, lanes * unknown_lane_gb_per_s, lanes);
  }

  void connect_directly(const std::vector<std::size_t>& members) {
    for (std::size_t i : members) {
      for (std::size_t j : members) {
        const int lanes = matrix_.cells[i][j].lanes;
        if (i < j && lanes > 0)
          connect(static_cast<int>(i), static_cast<int>(j), LinkKind::nvlink, lanes * unknown_lane_gb_per_s, lanes);
      }
    }
  }

  const TopoMatrix& matrix_;
  std::vector<ImportWarning>& warnings_;
  std::size_t count_;
  Graph graph_;
};

}  // namespace

Imported import_topo_matrix(std::string_view text, const std::string& name) {
  Imported imported;
  imported.format = "topo-m";
  const TopoMatrix matrix = read_topo_matrix(text, name, imported.warnings);
  imported.graph = MatrixGraphBuilder(matrix, imported.warnings).build();
  std::set<int> told;
  for (const MatrixDevice& device : matrix.devices) {
    if (device.numa >= 0 && count_cpus(device.cpus) > 0 && told.insert(device.numa).second)
      imported.machine.cpus.push_back({device.numa, device.cpus, 0});
  }
  const std::vector<std::string> problems = problems_of(imported.graph);
  if (!problems.empty()) refuse(name, 1, "", problems.front());
  return imported;
}

}  // namespace plait::topology
