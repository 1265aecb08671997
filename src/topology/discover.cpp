#include "topology/discover.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/device.h"
#include "core/message.h"
#include "topology/findings.h"
#include "topology/gpu_path.h"
#include "topology/nominal.h"
#include "topology/nvml.h"
#include "topology/sysfs.h"

namespace plait::topology {
namespace {

constexpr std::string_view nvidia = "0x10de";

class Discovery {
 public:
  explicit Discovery(const DiscoverRequest& request) : request_(request), sysfs_(request.root), nvml_(request.nvml_library) {}

  Discovered run() {
    machine_.driver = printable(nvml_.driver_version().value_or(""), 64);
    find_numa_nodes();
    find_gpus();
    find_nics();
    set_host_bridges();
    join_numa_nodes();
    connect_nvlinks();
    connect_c2c();
    ask_for_peers();
    add_driver_findings(sysfs_, nvml_, graph_, machine_);
    add_kernel_findings(sysfs_, graph_, machine_);
    add_pcie_findings(sysfs_, nvml_, graph_, links_, machine_);
    return {std::move(graph_), std::move(machine_)};
  }

 private:
  Node& node(int index) { return graph_.nodes[static_cast<std::size_t>(index)]; }

  int add(NodeKind kind, const std::string& name, int numa, const std::string& bus_id = "") {
    Node added;
    added.kind = kind;
    added.name = printable(name, max_name_bytes - 16);
    if (const int count = ++names_[added.name]; count > 1) added.name += "#" + std::to_string(count);
    added.numa = numa;
    added.bus_id = bus_id;
    graph_.nodes.push_back(std::move(added));
    return static_cast<int>(graph_.nodes.size()) - 1;
  }

  void connect(int a, int b, LinkKind kind, double gb_per_s, int lanes = 0) {
    graph_.edges.push_back(nominal_edge(a, b, kind, gb_per_s, lanes));
  }

  void note(const std::string& about, const std::string& value, const std::string& effect) {
    machine_.findings.push_back({about, value, effect});
  }

  void find_numa_nodes() {
    for (const std::string& name : names_in(sysfs_.path("sys/devices/system/node"))) {
      int numa = -1;
      if (!name.starts_with("node")) continue;
      const auto [rest, status] = std::from_chars(name.data() + 4, name.data() + name.size(), numa);
      if (status != std::errc() || rest != name.data() + name.size() || numa < 0 || numa >= 1 << 16) continue;
      const auto folder = sysfs_.path("sys/devices/system/node/" + name);
      NumaCpus cpus{numa, cpu_list(folder / "cpulist"), memory_of(folder)};
      if (cpus.cpus.empty()) continue;  // memory without CPUs: of a GPU (Grace Hopper), or CXL
      machine_.cpus.push_back(std::move(cpus));
    }
    if (machine_.cpus.empty()) machine_.cpus.push_back({0, cpu_list(sysfs_.path("sys/devices/system/cpu/online")), 0});
    std::sort(machine_.cpus.begin(), machine_.cpus.end(), [](const NumaCpus& x, const NumaCpus& y) { return x.numa < y.numa; });
    for (const NumaCpus& cpus : machine_.cpus) numa_node(cpus.numa);
  }

  // Returns "" if the text is not a list.
  static std::string cpu_list(const std::filesystem::path& file) {
    std::string list = read_line(file).value_or("");
    return count_cpus(list) > 0 ? list : "";
  }

  // "Node 0 MemTotal:       527951524 kB"
  static std::int64_t memory_of(const std::filesystem::path& folder) {
    const std::string text = read_line(folder / "meminfo").value_or("");
    const std::size_t number = text.find_first_of("0123456789", text.find("MemTotal:"));
    std::int64_t kilobytes = 0;
    if (text.find("MemTotal:") == std::string::npos || number == std::string::npos) return 0;
    std::from_chars(text.data() + number, text.data() + text.size(), kilobytes);
    return kilobytes > 0 && kilobytes < std::int64_t{1} << 50 ? kilobytes * 1024 : 0;
  }

  // On a machine with only one NUMA node that node is assumed where the kernel does not give a device's.
  int numa_or_only(int numa) const { return numa < 0 && machine_.cpus.size() == 1 ? machine_.cpus.front().numa : numa; }

  int numa_node(int numa) {
    const auto found = numa_nodes_.find(numa);
    if (found != numa_nodes_.end()) return found->second;
    const int index = add(NodeKind::numa, "numa" + (numa < 0 ? std::string("?") : std::to_string(numa)), numa);
    return numa_nodes_[numa] = index;
  }

  // `label`: "" if the link has been seen before.
  double pcie_rate(const std::string& device, const std::string& bridge_above, const std::string& label) {
    const Sysfs::PciLink link = sysfs_.link_of(device, bridge_above);
    if (!label.empty()) links_.push_back({label, gpus_.contains(device) ? device : "", link});
    return nominal_pcie_gb_per_s(link.gt_per_s, link.width).value_or(pcie_gb_per_s);
  }

  // Puts a device below its bridges, which are made if they do not exist yet.
  void hang(int device, const std::string& label) {
    const std::string bus_id = node(device).bus_id;
    const std::optional<PciPath> path = sysfs_.pci_path(bus_id);
    const int numa = numa_or_only(path ? sysfs_.numa_of(bus_id) : -1);
    node(device).numa = numa;
    if (!path) {
      note("place of " + label, "not in sysfs",
           "its PCIe links and NUMA node are not known; is /sys of the host visible here?");
      return connect(device, numa_node(numa), LinkKind::pcie, pcie_gb_per_s);
    }
    int parent = host_bridge(path->root, numa);
    std::string above;
    double root_port = 0;
    for (std::size_t i = 0; i < path->bridges.size(); ++i) {
      const std::string& bridge = path->bridges[i];
      // First the root port; then each switch's upstream port, which stands for the switch, and the downstream port that leads
      // on.
      const bool is_switch = i % 2 == 1;
      if (is_switch) {
        const auto found = switches_.find(bridge);
        const double rate = pcie_rate(bridge, above, found == switches_.end() ? "switch " + bridge : "");
        if (i == 1) root_port = rate;
        if (found == switches_.end()) {
          const int added = add(NodeKind::pcie_switch, bridge, numa, bridge);
          connect(added, parent, LinkKind::pcie, rate);
          switches_[bridge] = added;
        }
        parent = switches_.at(bridge);
      }
      above = bridge;
    }
    const double rate = pcie_rate(bus_id, above, label);
    if (root_port == 0) root_port = rate;
    // Devices on the root bus itself count as their own root ports.
    root_ports_[path->root][path->bridges.empty() ? bus_id : path->bridges.front()] = root_port;
    connect(device, parent, LinkKind::pcie, rate);
  }

  int host_bridge(const std::string& root, int numa) {
    const auto found = host_bridges_.find(root);
    if (found != host_bridges_.end()) return found->second;
    return host_bridges_[root] = add(NodeKind::host_bridge, root, numa);
  }

  void set_host_bridges() {
    for (const auto& [root, index] : host_bridges_) {
      double sum = 0;
      for (const auto& [port, rate] : root_ports_[root]) sum += rate;
      connect(index, numa_node(node(index).numa), LinkKind::pcie, std::min(sum, max_gb_per_s));
    }
  }

  void find_gpus() {
    std::vector<std::string> gpus;
    const auto add_once = [&](const std::string& bus_id) {
      if (std::find(gpus.begin(), gpus.end(), bus_id) == gpus.end()) gpus.push_back(bus_id);
    };
    for (const std::string& bus_id : request_.cuda_gpus) add_once(bus_id);
    for (const std::string& bus_id : nvml_.gpus()) add_once(bus_id);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const std::string name = "gpu" + std::to_string(i);
      const int index = add(NodeKind::gpu, name, -1, gpus[i]);
      node(index).index = static_cast<int>(i);
      node(index).model = nvml_.model(gpus[i]).value_or("");
      add_facts(index);
      gpus_[gpus[i]] = index;
      hang(index, name);
    }
    int without_driver = 0;
    for (const std::string& device : sysfs_.pci_devices()) {
      const bool is_gpu = sysfs_.class_of(device).starts_with("0x03") && read_line(sysfs_.pci(device) / "vendor") == nvidia;
      without_driver += is_gpu && !gpus_.contains(device);
    }
    if (without_driver > 0) {
      note("GPUs left out", std::to_string(without_driver) + " NVIDIA GPUs on PCIe that the driver does not list",
           nvml_.why_missing().empty()
               ? "the driver failed to start them, or this container does not have them: see `nvidia-smi` and dmesg"
               : nvml_.why_missing());
    }
  }

  void add_facts(int gpu) {
    const GpuTraits traits = nvml_.traits(node(gpu).bus_id);
    if (traits.mig.value_or(false)) in_mig_mode_.insert(gpu);
    GpuFacts facts{gpu, printable(traits.name, 96), std::max<std::int64_t>(traits.memory_bytes, 0), 0};
    if (const int each = cores_per_multiprocessor(node(gpu).model); each > 0) facts.multiprocessors = traits.cores / each;
    if (facts != GpuFacts{gpu, "", 0, 0}) machine_.gpus.push_back(std::move(facts));
  }

  void add_nic(const std::string& bus_id, const std::string& name, double port_gb_per_s) {
    const auto found = nics_.find(bus_id);
    if (found != nics_.end()) {
      // Interfaces of one PCI function lead to the same ports.
      double& rate = node(found->second).port_gb_per_s;
      rate = std::max(rate, port_gb_per_s);
      return;
    }
    const int index = add(NodeKind::nic, name, -1, bus_id);
    node(index).port_gb_per_s = std::min(port_gb_per_s, max_gb_per_s);
    nics_[bus_id] = index;
    hang(index, name);
  }

  void find_nics() {
    std::error_code error;
    const auto is_virtual_function = [&](const std::string& bus_id) {
      return std::filesystem::exists(sysfs_.pci(bus_id) / "physfn", error);
    };
    for (const std::string& name : names_in(sysfs_.path("sys/class/infiniband"))) {
      const auto folder = sysfs_.path("sys/class/infiniband/" + name);
      const std::optional<std::string> device = sysfs_.pci_device_of(folder);
      if (!device || is_virtual_function(*device)) continue;
      double sum = 0;
      for (const std::string& port : names_in(folder / "ports")) sum += port_rate(folder / "ports" / port);
      add_nic(*device, name, sum);
    }
    for (const std::string& name : names_in(sysfs_.path("sys/class/net"))) {
      const auto folder = sysfs_.path("sys/class/net/" + name);
      const std::optional<std::string> device = sysfs_.pci_device_of(folder);
      // Interfaces of an InfiniBand device are already counted among its ports.
      if (!device || is_virtual_function(*device) || (nics_.contains(*device) && has_infiniband(*device))) continue;
      const std::int64_t megabits = read_integer(folder / "speed").value_or(0);  // -1: down, or unknown
      add_nic(*device, name, megabits > 0 ? static_cast<double>(megabits) / 8000 : 0);
    }
  }

  bool has_infiniband(const std::string& bus_id) const {
    std::error_code error;
    return std::filesystem::exists(sysfs_.pci(bus_id) / "infiniband", error) ||
           std::filesystem::exists(
               sysfs_.path("sys/class/infiniband/" + graph_.nodes[static_cast<std::size_t>(nics_.at(bus_id))].name), error);
  }

  // "400 Gb/sec (4X NDR)", where "4: ACTIVE"
  static double port_rate(const std::filesystem::path& port) {
    if (!read_line(port / "state").value_or("4").starts_with("4")) return 0;
    const std::string rate = read_line(port / "rate").value_or("");
    double gigabits = 0;
    std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
    return gigabits > 0 && gigabits < 1e6 ? gigabits / 8 : 0;
  }

  void join_numa_nodes() {
    for (auto one = numa_nodes_.begin(); one != numa_nodes_.end(); ++one) {
      for (auto other = std::next(one); other != numa_nodes_.end(); ++other)
        connect(one->second, other->second, LinkKind::smp, smp_gb_per_s);
    }
  }

  double lane_rate(int gpu) {
    const std::string& model = node(gpu).model;
    const std::optional<double> known = nominal_lane_gb_per_s(model);
    if (!known && warned_models_.insert(model).second) {
      note("NVLink of " + node(gpu).name, model.empty() ? "model not known" : "no nominal bandwidth of " + model,
           "its lanes count as those of V100 to H200");
    }
    return known.value_or(unknown_lane_gb_per_s);
  }

  void connect_nvlinks() {
    std::map<std::pair<int, int>, int> lanes;  // between two GPUs, from the end that lists more
    std::map<int, int> at_switch;
    for (const auto& [bus_id, gpu] : gpus_) {
      std::map<int, int> listed;
      int elsewhere = 0;
      for (const NvLink& link : nvml_.nvlinks(bus_id)) {
        const auto peer = gpus_.find(link.bus_id);
        if (link.end == NvLinkEnd::nvswitch)
          ++at_switch[gpu];
        else if (link.end == NvLinkEnd::gpu && peer != gpus_.end() && peer->second != gpu)
          ++listed[peer->second];
        else
          ++elsewhere;
      }
      for (const auto& [peer, count] : listed) {
        int& known = lanes[{std::min(gpu, peer), std::max(gpu, peer)}];
        known = std::max(known, count);
      }
      if (elsewhere > 0)
        note("NVLink of " + node(gpu).name, std::to_string(elsewhere) + " lanes to a device that is not listed",
             "they are left out");
    }
    for (const auto& [ends, count] : lanes) {
      const double each = std::min(lane_rate(ends.first), lane_rate(ends.second));
      connect(ends.first, ends.second, LinkKind::nvlink, each * std::min(count, max_lanes), std::min(count, max_lanes));
    }
    if (at_switch.empty()) return;
    const int nvswitch = add(NodeKind::nvswitch, "nvswitch", -1);
    for (const auto& [gpu, count] : at_switch)
      connect(gpu, nvswitch, LinkKind::nvlink, lane_rate(gpu) * std::min(count, max_lanes), std::min(count, max_lanes));
  }

  // Connects each GPU to the memory of its NUMA node.
  void connect_c2c() {
    for (const auto& [bus_id, gpu] : gpus_) {
      const C2cLinks c2c = nvml_.c2c_links(bus_id);
      if (c2c.gb_per_s <= 0) continue;
      connect(gpu, numa_node(node(gpu).numa), LinkKind::c2c, std::min(c2c.gb_per_s, max_gb_per_s), c2c.links);
    }
  }

  void ask_for_peers() {
    const std::vector<int> gpus = gpus_of(graph_);
    for (const int from : gpus) {
      for (const int to : gpus) {
        if (from == to) continue;
        PeerStatus status;
        status.from = from;
        status.to = to;
        if (const auto obstacle = nvml_.peer_obstacle(node(from).bus_id, node(to).bus_id)) {
          status.access = obstacle->empty() ? PeerAccess::yes : PeerAccess::no;
          status.why = *obstacle;
        }
        for (const int end : {to, from}) {
          if (status.access != PeerAccess::yes && in_mig_mode_.contains(end)) status.why = node(end).name + " is in MIG mode";
        }
        machine_.peers.push_back(std::move(status));
      }
    }
    set_access(graph_, machine_.peers);
  }

  const DiscoverRequest& request_;
  Sysfs sysfs_;
  Nvml nvml_;
  Graph graph_;
  Machine machine_;
  std::map<std::string, int> names_;  // how often each is used
  std::map<int, int> numa_nodes_;     // by the node's number
  std::map<std::string, int> host_bridges_, switches_, gpus_, nics_;
  std::vector<LinkState> links_;
  std::set<int> in_mig_mode_;
  std::map<std::string, std::map<std::string, double>> root_ports_;  // GB/s of each port, by host bridge
  std::set<std::string> warned_models_;
};

}  // namespace

Discovered discover(const DiscoverRequest& request) { return Discovery(request).run(); }

Discovered discover_live() {
  const std::vector<std::string> visible = cuda_gpus();
  Discovered found = discover({.cuda_gpus = visible});
  for (PeerStatus& peer : found.machine.peers) {
    const auto index = [&](int node) { return found.graph.nodes[static_cast<std::size_t>(node)].index; };
    const int from = index(peer.from), to = index(peer.to), count = static_cast<int>(visible.size());
    if (from >= count || to >= count) continue;
    const PathFacts path = gpu_path(from, visible[static_cast<std::size_t>(from)], visible[static_cast<std::size_t>(to)]);
    if (!path.visible) continue;
    peer.access = path.peer_access ? PeerAccess::yes : PeerAccess::no;
    if (path.peer_access)
      peer.why.clear();
    else if (peer.why.empty())
      peer.why = path.why_no_access.empty() ? "CUDA does not permit it" : path.why_no_access;
    peer.native_atomics = path.native_atomics ? 1 : 0;
    peer.performance_rank = path.performance_rank;
  }
  set_access(found.graph, found.machine.peers);
  return found;
}

}  // namespace plait::topology
