#include "topology/findings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "topology/import_error.h"

namespace plait::topology {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::vector<std::string> words_with(const std::string& text, const std::vector<std::string>& parts) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    const auto is_in = [&](const std::string& part) { return word.find(part) != std::string::npos; };
    if (std::any_of(parts.begin(), parts.end(), is_in)) found.push_back(printable(word, 80));
    at = end + 1;
  }
  return found;
}

std::vector<const Node*> of_kind(const Graph& graph, NodeKind kind) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes) {
    if (node.kind == kind) found.push_back(&node);
  }
  return found;
}

void add_iommu(const Sysfs& sysfs, const Graph& graph, Machine& machine) {
  const std::vector<std::string> units = names_in(sysfs.path("sys/class/iommu"));
  const std::string options =
      joined(words_with(read_line(sysfs.path("proc/cmdline")).value_or(""), {"iommu", "pcie_acs_override", "pci=", "noats"}));
  const std::string asked = options.empty() ? "" : "; kernel options: " + options;
  if (units.empty()) {
    machine.findings.push_back({"IOMMU", "none in use" + asked, ""});
    return;
  }
  std::map<std::string, std::vector<std::string>> gpus_by_type;
  for (const Node* gpu : of_kind(graph, NodeKind::gpu)) {
    const std::string type = read_line(sysfs.pci(gpu->bus_id) / "iommu_group" / "type").value_or("not told");
    gpus_by_type[printable(type, 32)].push_back(gpu->name);
  }
  std::string value = "on (" + std::to_string(units.size()) + (units.size() == 1 ? " unit" : " units"), effect;
  for (const auto& [type, gpus] : gpus_by_type) {
    value += "; " + joined(gpus) + ": " + type;
    if (type != "identity")
      effect =
          "addresses of messages between GPUs over PCIe may be translated, which makes them slow, wrong or impossible: on bare "
          "metal boot with iommu=pt, or iommu=off";
  }
  machine.findings.push_back({"IOMMU", value + ")" + asked, effect});
}

// The control register of the Access Control Services capability; nothing where there is none or its place cannot be read.
enum class Acs { none, hidden, direct, redirected };
Acs acs_of(const Sysfs& sysfs, const std::string& bridge) {
  constexpr std::size_t space = 4096, first = 0x100;
  const std::optional<std::string> config = read_bytes(sysfs.pci(bridge) / "config", space);
  if (!config || config->size() <= first) return Acs::hidden;  // without privileges the kernel shows 64 bytes
  const auto byte = [&](std::size_t at) {
    return at < config->size() ? static_cast<unsigned>(static_cast<unsigned char>((*config)[at])) : 0u;
  };
  constexpr unsigned access_control = 0x000d, redirect = 1u << 2 | 1u << 3;
  std::set<std::size_t> seen;  // a chain that goes in circles ends
  for (std::size_t at = first; at >= first && seen.insert(at).second;) {
    const unsigned id = byte(at) | byte(at + 1) << 8;
    if (id == access_control) return (byte(at + 6) & redirect) != 0 ? Acs::redirected : Acs::direct;
    at = byte(at + 2) >> 4 | byte(at + 3) << 4;
  }
  return Acs::none;
}

void add_acs(const Sysfs& sysfs, const Graph& graph, Machine& machine) {
  // Redirection matters at the ports of a switch, which could pass a message on by themselves.
  std::set<std::string> ports;
  for (const Node* gpu : of_kind(graph, NodeKind::gpu)) {
    const std::optional<PciPath> path = sysfs.pci_path(gpu->bus_id);
    for (std::size_t i = 2; path && i < path->bridges.size(); i += 2) ports.insert(path->bridges[i]);
  }
  if (ports.empty()) return;
  std::vector<std::string> redirected;
  int hidden = 0;
  for (const std::string& port : ports) {
    const Acs acs = acs_of(sysfs, port);
    hidden += acs == Acs::hidden;
    if (acs == Acs::redirected) redirected.push_back(port);
  }
  if (!redirected.empty()) {
    machine.findings.push_back(
        {"PCIe ACS", "redirects at " + joined(redirected),
         "messages between GPUs below one switch go up to the CPU and back, or fail: on bare metal switch ACS off "
         "in the BIOS, or with setpci ECAP_ACS+6.w=0000 on these ports"});
  } else if (hidden > 0) {
    machine.findings.push_back(
        {"PCIe ACS", "not readable at " + std::to_string(hidden) + " of " + std::to_string(ports.size()) + " switch ports",
         "run `plait topo` as root to see it"});
  } else {
    machine.findings.push_back({"PCIe ACS", "no redirection at " + std::to_string(ports.size()) + " switch ports", ""});
  }
}

// Namespaces of the first processes have fixed numbers (include/linux/proc_ns.h).
void add_namespaces(const Sysfs& sysfs, Machine& machine) {
  const std::pair<const char*, const char*> initial[] = {{"pid", "pid:[4026531836]"}, {"ipc", "ipc:[4026531839]"}};
  std::vector<std::string> own;
  for (const auto& [name, number] : initial) {
    std::error_code error;
    const std::string link = std::filesystem::read_symlink(sysfs.path(std::string("proc/self/ns/") + name), error).string();
    if (!error && link.starts_with(name) && link != number) own.push_back(std::string(name) == "pid" ? "PID" : "IPC");
  }
  if (own.empty()) return;
  machine.findings.push_back({"container", joined(own) + " namespace of its own",
                              "ranks in different containers cannot use the transport ipc; those in this one can"});
}

void add_hypervisor(const Sysfs& sysfs, Machine& machine) {
  const std::string text = read_bytes(sysfs.path("proc/cpuinfo"), std::size_t{1} << 14).value_or("");
  const std::size_t flags = text.find("\nflags");
  if (flags == std::string::npos) return;
  const std::string line = text.substr(flags + 1, text.find('\n', flags + 1) - flags - 1);
  if (words_with(line, {"hypervisor"}).empty()) return;
  machine.findings.push_back(
      {"virtual machine", "yes",
       "IOMMU and ACS are the host's; PCIe switches and NUMA nodes may be hidden, so compare `--measure`"});
}

}  // namespace

void add_driver_findings(const Sysfs& sysfs, const Nvml& nvml, const Graph& graph, Machine& machine) {
  const std::vector<const Node*> gpus = of_kind(graph, NodeKind::gpu);
  if (!nvml.why_missing().empty())
    machine.findings.push_back(
        {"NVML", printable(nvml.why_missing(), 256),
         gpus.empty() ? "no NVIDIA driver, so no GPU can be seen" : "NVLinks and peer access are not known"});
  if (gpus.empty()) return;
  std::error_code error;
  const bool rdma_nic =
      std::filesystem::exists(sysfs.path("sys/class/infiniband"), error) && !of_kind(graph, NodeKind::nic).empty();
  if (rdma_nic) {
    const bool loaded = std::filesystem::exists(sysfs.path("sys/module/nvidia_peermem"), error) ||
                        std::filesystem::exists(sysfs.path("sys/module/nv_peer_mem"), error);
    machine.findings.push_back(
        {"GPUDirect RDMA", loaded ? "nvidia_peermem is loaded" : "nvidia_peermem is not loaded",
         loaded ? ""
                : "NICs reach GPU memory only if driver and kernel have DMA-BUF; else messages between hosts "
                  "go through host memory: modprobe nvidia_peermem"});
  }
  if (!of_kind(graph, NodeKind::nvswitch).empty()) {
    const bool channel = std::filesystem::exists(sysfs.path("dev/nvidia-caps-imex-channels/channel0"), error);
    machine.findings.push_back({"fabric handles", channel ? "an IMEX channel is there" : "no IMEX channel",
                                channel ? "" : "only needed for NVLink between hosts; within one the other handles do"});
  }
  // "RegistryDwords: "PeerMappingOverride=1;"", "GrdmaPciTopoCheckOverride: 0"
  const std::string parameters = read_bytes(sysfs.path("proc/driver/nvidia/params"), std::size_t{1} << 14).value_or("");
  const std::size_t dwords = parameters.find("RegistryDwords: \"");
  if (dwords == std::string::npos) return;
  const std::size_t first = parameters.find('"', dwords) + 1;
  const std::string keys = parameters.substr(first, parameters.find('"', first) - first);
  if (!keys.empty())
    machine.findings.push_back(
        {"driver's registry keys", printable(keys, 256), "keys such as RMForceP2PType change peer access"});
}

void add_kernel_findings(const Sysfs& sysfs, const Graph& graph, Machine& machine) {
  add_hypervisor(sysfs, machine);
  if (of_kind(graph, NodeKind::gpu).empty()) return;
  add_iommu(sysfs, graph, machine);
  add_acs(sysfs, graph, machine);
  add_namespaces(sysfs, machine);
}

}  // namespace plait::topology
