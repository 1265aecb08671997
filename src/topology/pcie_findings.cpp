#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "topology/findings.h"
#include "topology/sysfs.h"

namespace plait::topology {
namespace {

std::string listed(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ", ")); }

std::vector<const Node*> gpus_in(const Graph& graph) {
  std::vector<const Node*> gpus;
  for (const int gpu : gpus_of(graph)) gpus.push_back(&graph.nodes[static_cast<std::size_t>(gpu)]);
  return gpus;
}

constexpr int busy_state = 2;  // up to this performance state a GPU's clocks, and its link, are at full speed

// Reports missing lanes, and links of a lower generation than both ends support. An idle GPU lowers its generation by itself,
// so that is a fault only while its clocks are up; idle ones share one line.
void add_links(const Nvml& nvml, const std::vector<LinkState>& links, Machine& machine) {
  std::map<std::string, std::vector<std::string>> idle;  // by speed
  for (const LinkState& state : links) {
    const Sysfs::PciLink& link = state.link;
    const bool narrow = link.width > 0 && link.width < link.most_width;
    const bool slow = link.gt_per_s_now > 0 && link.gt_per_s_now < link.gt_per_s;
    const std::string speed = slow ? fmt::format("{} of {} GT/s", link.gt_per_s_now, link.gt_per_s) : "";
    const bool may_be_idle = slow && !state.gpu.empty() && nvml.traits(state.gpu).performance_state.value_or(15) > busy_state;
    std::vector<std::string> values;
    std::string effect;
    if (narrow) {
      values.push_back(fmt::format("x{} of x{}", link.width, link.most_width));
      effect = "runs with fewer lanes than it could: check its seating, riser and slot";
    }
    if (slow && !may_be_idle) {
      values.push_back(speed);
      effect += std::string(effect.empty() ? "" : "; ") +
                "trained at a lower generation than both ends can do: check its seating, riser and cable, and the generation "
                "that the BIOS sets for the slot";
    }
    if (!values.empty()) machine.findings.push_back({"PCIe of " + state.label, listed(values), effect});
    if (may_be_idle) idle[speed].push_back(state.label);
  }
  for (const auto& [speed, labels] : idle) {
    machine.findings.push_back({"PCIe generation",
                                listed(labels) + ": " + speed +
                                    " at the moment, as GPUs do while idle; a fault only if it stays so "
                                    "while they work, as under `plait topo --measure`",
                                ""});
  }
}

enum class Acs { none, hidden, direct, redirected };

Acs acs_of(const Sysfs& sysfs, const std::string& bridge) {
  constexpr unsigned access_control = 0x000d, redirect = 1u << 2 | 1u << 3;
  constexpr std::size_t control = 6;
  const std::optional<PciConfig> config = PciConfig::read(sysfs, bridge);
  if (!config) return Acs::hidden;
  const std::optional<std::size_t> found = config->extended_capability(access_control);
  if (!found) return Acs::none;
  return (config->word(*found + control) & redirect) != 0 ? Acs::redirected : Acs::direct;
}

struct PortKind {
  const char* about;
  const char* name;
  const char* effect;
};

void add_acs_of(const Sysfs& sysfs, const PortKind& kind, const std::set<std::string>& ports, Machine& machine) {
  if (ports.empty()) return;
  std::vector<std::string> redirected;
  int hidden = 0;
  for (const std::string& port : ports) {
    const Acs acs = acs_of(sysfs, port);
    hidden += acs == Acs::hidden;
    if (acs == Acs::redirected) redirected.push_back(port);
  }
  if (!redirected.empty())
    machine.findings.push_back({kind.about, "redirects at " + listed(redirected), kind.effect});
  else if (hidden > 0)
    machine.findings.push_back({kind.about, fmt::format("not readable at {} of {} {}", hidden, ports.size(), kind.name),
                                "run `plait topo` as root to see it"});
  else
    machine.findings.push_back({kind.about, fmt::format("no redirection at {} {}", ports.size(), kind.name), ""});
}

void add_acs(const Sysfs& sysfs, const std::vector<const Node*>& gpus, bool others, Machine& machine) {
  // Redirection matters where a port could pass a message on: at the downstream ports of a switch, and at root ports if another
  // root port has a device.
  std::set<std::string> switch_ports, root_ports;
  for (const Node* gpu : gpus) {
    const std::optional<PciPath> path = sysfs.pci_path(gpu->bus_id);
    if (!path || path->bridges.empty()) continue;
    root_ports.insert(path->bridges.front());
    for (std::size_t i = 2; i < path->bridges.size(); i += 2) switch_ports.insert(path->bridges[i]);
  }
  if (root_ports.size() < 2 && !others) root_ports.clear();
  add_acs_of(sysfs,
             {"PCIe ACS", "switch ports",
              "messages between GPUs below one switch go up to the CPU and back, or fail: on bare metal switch ACS off in the "
              "BIOS, or with setpci ECAP_ACS+6.w=0000 on these ports"},
             switch_ports, machine);
  add_acs_of(
      sysfs,
      {"PCIe ACS at root ports", "root ports",
       "messages between GPUs, and between GPUs and NICs, at different root ports go through the IOMMU: slow, or refused "
       "where it translates addresses. On bare metal switch ACS, or VT-d or AMD-Vi with it, off in the BIOS, or ACS with "
       "setpci ECAP_ACS+6.w=0000 on these ports; in a virtual machine the host's ports count"},
      root_ports, machine);
}

enum class Approval { hidden, none, given };
struct Clique {
  Approval approval = Approval::hidden;
  unsigned number = 0;
};

// A vendor-specific capability of 8 bytes with the signature "P2P", then a byte with the clique in bits 3 to 6.
Clique clique_of(const Sysfs& sysfs, const std::string& gpu) {
  constexpr unsigned vendor_specific = 0x09, bytes = 8;
  const std::optional<PciConfig> config = PciConfig::read(sysfs, gpu);
  if (!config) return {};
  for (const std::size_t at : config->capabilities(vendor_specific)) {
    const bool signed_p2p = config->byte(at + 3) == 'P' && config->byte(at + 4) == '2' && config->byte(at + 5) == 'P';
    if (config->byte(at + 2) >= bytes && signed_p2p) return {Approval::given, config->byte(at + 6) >> 3 & 0xf};
  }
  return {Approval::none, 0};
}

// In a virtual machine the driver refuses peer access over PCIe between GPUs that the hypervisor has not put into one clique.
void add_cliques(const Sysfs& sysfs, const std::vector<const Node*>& gpus, Machine& machine) {
  std::map<unsigned, std::vector<std::string>> cliques;
  std::vector<std::string> without, hidden;
  for (const Node* gpu : gpus) {
    const Clique clique = clique_of(sysfs, gpu->bus_id);
    switch (clique.approval) {
      case Approval::given: cliques[clique.number].push_back(gpu->name); break;
      case Approval::none: without.push_back(gpu->name); break;
      case Approval::hidden: hidden.push_back(gpu->name); break;
    }
  }
  const std::optional<Hypervisor> host = hypervisor_of(sysfs);
  if (!host && cliques.empty()) return;
  std::vector<std::string> values;
  for (const auto& [number, members] : cliques) values.push_back(fmt::format("{} in clique {}", listed(members), number));
  if (!without.empty()) values.push_back(listed(without) + " in none");
  if (!hidden.empty()) values.push_back(listed(hidden) + " not readable");
  std::string effect;
  if (!hidden.empty()) {
    effect = "run `plait topo` as root to see whether the hypervisor approves peer access over PCIe";
  } else if (!without.empty() || cliques.size() > 1) {
    effect = cliques.empty() ? "the hypervisor passes these GPUs through without approving peer access between them"
                             : "the hypervisor approves peer access only between GPUs of one clique";
    effect += ", so the driver refuses it over PCIe (NVLink needs no approval) and messages go through host memory: ";
    effect +=
        host && !host->qemu && !host->name.empty()
            ? "that is for whoever runs the host to change; else take a machine whose GPUs are joined by NVLink"
            : "where the host's PCIe lets them reach each other, start QEMU with x-nv-gpudirect-clique=0 for each of them "
              "(-device vfio-pci,host=...,x-nv-gpudirect-clique=0)";
  }
  machine.findings.push_back({"GPUDirect cliques", fmt::format("{}", fmt::join(values, "; ")), effect});
}

}  // namespace

void add_pcie_findings(const Sysfs& sysfs, const Nvml& nvml, const Graph& graph, const std::vector<LinkState>& links,
                       Machine& machine) {
  add_links(nvml, links, machine);
  const std::vector<const Node*> gpus = gpus_in(graph);
  if (gpus.empty()) return;
  const auto is_nic = [](const Node& node) { return node.kind == NodeKind::nic; };
  add_acs(sysfs, gpus, std::any_of(graph.nodes.begin(), graph.nodes.end(), is_nic), machine);
  if (gpus.size() > 1) add_cliques(sysfs, gpus, machine);
}

}  // namespace plait::topology
