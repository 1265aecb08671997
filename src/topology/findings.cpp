#include "topology/findings.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "core/message.h"
#include "topology/sysfs.h"

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
  const std::optional<Hypervisor> found = hypervisor_of(sysfs);
  if (!found) return;
  std::string value = found->name.empty() ? "yes, of a kind that is not known" : found->name;
  if (!found->product.empty() && found->product != found->name) value += " (" + found->product + ")";
  machine.findings.push_back(
      {"virtual machine", value,
       "IOMMU and ACS are the host's; PCIe switches and NUMA nodes may be hidden, so compare `--measure`"});
}

// GPU instances are separate devices that neither peer access nor NVLink joins.
void add_mig(const Nvml& nvml, const std::vector<const Node*>& gpus, Machine& machine) {
  std::vector<std::string> cut;
  for (const Node* gpu : gpus) {
    if (nvml.traits(gpu->bus_id).mig.value_or(false)) cut.push_back(gpu->name);
  }
  if (cut.empty()) return;
  machine.findings.push_back(
      {"MIG", "on for " + joined(cut),
       "a GPU in MIG mode has no peer access and no NVLink, so its messages go through host memory: where nobody needs its "
       "instances, switch it off with `nvidia-smi -i NUMBER -mig 0` as root"});
}

// True if a release such as "6.8.0-45-generic" is at least {5, 12}.
bool kernel_is_at_least(const Sysfs& sysfs, int major, int minor) {
  const std::string text = read_line(sysfs.path("proc/sys/kernel/osrelease")).value_or("");
  std::pair<int, int> version{0, 0};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), version.first);
  if (status == std::errc() && rest != text.data() + text.size())
    std::from_chars(rest + 1, text.data() + text.size(), version.second);
  return version >= std::pair(major, minor);
}

// NICs reach GPU memory through the module nvidia_peermem, or through DMA-BUF, which only the driver's open modules export, and
// only on kernels from 5.12 on.
void add_gpudirect_rdma(const Sysfs& sysfs, Machine& machine) {
  std::error_code error;
  const bool peermem = std::filesystem::exists(sysfs.path("sys/module/nvidia_peermem"), error) ||
                       std::filesystem::exists(sysfs.path("sys/module/nv_peer_mem"), error);
  const std::optional<std::string> version = read_bytes(sysfs.path("proc/driver/nvidia/version"), 4096);
  const bool open = version && version->find("Open Kernel Module") != std::string::npos;
  const bool dma_buf = open && kernel_is_at_least(sysfs, 5, 12);
  std::string value = peermem ? "nvidia_peermem is loaded" : "nvidia_peermem is not loaded", effect;
  if (dma_buf) {
    value += peermem ? ", and the driver exports DMA-BUF" : ", but the driver exports DMA-BUF, which does the same";
  } else {
    value += !version ? "; whether the driver exports DMA-BUF is not known"
             : open   ? "; no DMA-BUF: the kernel is older than 5.12"
                      : "; no DMA-BUF: the driver's kernel modules are not the open ones";
    if (!peermem)
      effect =
          "NICs reach GPU memory by one of the two, else messages between hosts go through host memory: modprobe "
          "nvidia_peermem, "
          "or install the driver with its open kernel modules";
  }
  machine.findings.push_back({"GPUDirect RDMA", value, effect});
}

}  // namespace

void add_driver_findings(const Sysfs& sysfs, const Nvml& nvml, const Graph& graph, Machine& machine) {
  const std::vector<const Node*> gpus = of_kind(graph, NodeKind::gpu);
  if (!nvml.why_missing().empty())
    machine.findings.push_back(
        {"NVML", printable(nvml.why_missing(), 256),
         gpus.empty() ? "no NVIDIA driver, so no GPU can be seen" : "NVLinks and peer access are not known"});
  if (gpus.empty()) return;
  add_mig(nvml, gpus, machine);
  std::error_code error;
  if (std::filesystem::exists(sysfs.path("sys/class/infiniband"), error) && !of_kind(graph, NodeKind::nic).empty())
    add_gpudirect_rdma(sysfs, machine);
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
  add_namespaces(sysfs, machine);
}

}  // namespace plait::topology
