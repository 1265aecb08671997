#include "topology/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "core/bus_id.h"

namespace plait::topology {
namespace {

// The few declarations of nvml.h that are needed: it comes with the toolkit's development package, which not every machine
// that builds has. NVML keeps them stable; names as there, without the prefix.
using Handle = struct OpaqueDevice*;
using Status = int;  // 0: success

struct PciInfo {  // nvmlPciInfo_t of the functions ending in _v3 and _v2 below
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency;
  int type;
  Status status;
  union {
    unsigned number;
    unsigned long long room;
  };
};
constexpr unsigned c2c_link_count = 170, c2c_link_status = 171, c2c_link_megabytes_per_s = 172;  // NVML_FI_DEV_C2C_*
constexpr unsigned c2c_links_at_most = 32;

constexpr unsigned gpus_at_most = 1024;
constexpr unsigned lanes_at_most = 36;  // Blackwell has 18; asking for a lane that there is not is an error
constexpr unsigned remote_is_gpu = 0, remote_is_switch = 2;
constexpr int p2p_read = 0, p2p_write = 1;

// nvmlGpuP2PStatus_t
std::optional<std::string> words_of_peer_status(int status) {
  switch (status) {
    case 0: return std::string();
    case 1: return "the chipset does not support it";
    case 2: return "the GPU does not support it";
    case 3: return "the PCIe topology does not support it";
    case 4: return "it is disabled by the driver's registry key";
    case 5: return "the driver does not support it here";
    default: return std::nullopt;
  }
}

}  // namespace

struct Nvml::Library {
  explicit Library(void* opened) : library(opened) {
    find(init, "nvmlInit_v2");
    find(shutdown, "nvmlShutdown");
    find(error_string, "nvmlErrorString");
    find(system_driver_version, "nvmlSystemGetDriverVersion");
    find(device_count, "nvmlDeviceGetCount_v2");
    find(handle_by_index, "nvmlDeviceGetHandleByIndex_v2");
    find(pci_info, "nvmlDeviceGetPciInfo_v3");
    find(device_name, "nvmlDeviceGetName");
    find(compute_capability, "nvmlDeviceGetCudaComputeCapability");
    find(handle_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    find(nvlink_state, "nvmlDeviceGetNvLinkState");
    find(nvlink_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    find(nvlink_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
    find(field_values, "nvmlDeviceGetFieldValues");
    find(common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
    find(p2p_status, "nvmlDeviceGetP2PStatus");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (started && shutdown) shutdown();
    ::dlclose(library);
  }

  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
  }

  Handle device(const std::string& bus_id) const {
    Handle handle = nullptr;
    return handle_by_bus_id && handle_by_bus_id(bus_id.c_str(), &handle) == 0 ? handle : nullptr;
  }

  void* library;
  bool started = false;
  Status (*init)() = nullptr;
  Status (*shutdown)() = nullptr;
  const char* (*error_string)(Status) = nullptr;
  Status (*system_driver_version)(char*, unsigned) = nullptr;
  Status (*device_count)(unsigned*) = nullptr;
  Status (*handle_by_index)(unsigned, Handle*) = nullptr;
  Status (*pci_info)(Handle, PciInfo*) = nullptr;
  Status (*device_name)(Handle, char*, unsigned) = nullptr;
  Status (*compute_capability)(Handle, int*, int*) = nullptr;
  Status (*handle_by_bus_id)(const char*, Handle*) = nullptr;
  Status (*nvlink_state)(Handle, unsigned, unsigned*) = nullptr;
  Status (*nvlink_remote)(Handle, unsigned, PciInfo*) = nullptr;
  Status (*nvlink_remote_type)(Handle, unsigned, unsigned*) = nullptr;
  Status (*field_values)(Handle, int, FieldValue*) = nullptr;
  Status (*common_ancestor)(Handle, Handle, unsigned*) = nullptr;
  Status (*p2p_status)(Handle, Handle, int, int*) = nullptr;
};

Nvml::Nvml(const std::string& library) {
  void* const opened = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!opened) {
    const char* const reason = ::dlerror();
    why_missing_ = std::string("NVML cannot be opened: ") + (reason ? reason : library.c_str());
    return;
  }
  auto found = std::make_unique<Library>(opened);
  if (!found->init) {
    why_missing_ = library + " is not NVML: it has no nvmlInit_v2";
    return;
  }
  if (const Status status = found->init(); status != 0) {
    why_missing_ = std::string("NVML does not start: ") + (found->error_string ? found->error_string(status) : "unknown error");
    return;
  }
  found->started = true;
  library_ = std::move(found);
}

Nvml::~Nvml() = default;

std::optional<std::string> Nvml::driver_version() const {
  std::array<char, 81> text{};
  const bool known =
      library_ && library_->system_driver_version && library_->system_driver_version(text.data(), text.size() - 1) == 0;
  return known ? std::optional<std::string>(text.data()) : std::nullopt;
}

std::vector<std::string> Nvml::gpus() const {
  std::vector<std::string> found;
  unsigned count = 0;
  const bool possible = library_ && library_->device_count && library_->handle_by_index && library_->pci_info;
  if (!possible || library_->device_count(&count) != 0) return found;
  for (unsigned i = 0; i < std::min(count, gpus_at_most); ++i) {
    Handle device = nullptr;
    PciInfo info{};
    // One without permission, or fallen off the bus, is passed over.
    if (library_->handle_by_index(i, &device) != 0 || library_->pci_info(device, &info) != 0) continue;
    info.bus_id[sizeof info.bus_id - 1] = '\0';
    if (const auto bus_id = bus_id_from(info.bus_id)) found.push_back(*bus_id);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<std::string> Nvml::name(const std::string& bus_id) const {
  std::array<char, 97> text{};
  const Handle device = library_ ? library_->device(bus_id) : nullptr;
  const bool known = device && library_->device_name && library_->device_name(device, text.data(), text.size() - 1) == 0;
  return known ? std::optional<std::string>(text.data()) : std::nullopt;
}

std::optional<std::string> Nvml::model(const std::string& bus_id) const {
  const Handle device = library_ ? library_->device(bus_id) : nullptr;
  int major = 0, minor = 0;
  if (!device || !library_->compute_capability || library_->compute_capability(device, &major, &minor) != 0)
    return std::nullopt;
  return "sm" + std::to_string(major) + std::to_string(minor);
}

bool Nvml::knows(const std::string& bus_id) const { return library_ && library_->device(bus_id); }

std::vector<NvLink> Nvml::nvlinks(const std::string& bus_id) const {
  std::vector<NvLink> links;
  const Handle device = library_ ? library_->device(bus_id) : nullptr;
  if (!device || !library_->nvlink_state) return links;
  for (unsigned lane = 0; lane < lanes_at_most; ++lane) {
    unsigned up = 0;
    if (library_->nvlink_state(device, lane, &up) != 0 || up != 1) continue;
    NvLink link;
    link.lane = static_cast<int>(lane);
    PciInfo remote{};
    if (library_->nvlink_remote && library_->nvlink_remote(device, lane, &remote) == 0) {
      remote.bus_id[sizeof remote.bus_id - 1] = '\0';
      link.bus_id = bus_id_from(remote.bus_id).value_or("");
    }
    unsigned type = ~0u;
    if (library_->nvlink_remote_type && library_->nvlink_remote_type(device, lane, &type) == 0) {
      link.end = type == remote_is_gpu ? NvLinkEnd::gpu : type == remote_is_switch ? NvLinkEnd::nvswitch : NvLinkEnd::other;
    } else if (!link.bus_id.empty() && knows(link.bus_id)) {
      link.end = NvLinkEnd::gpu;
    }
    links.push_back(std::move(link));
  }
  return links;
}

C2cLinks Nvml::c2c_links(const std::string& bus_id) const {
  C2cLinks found;
  const Handle device = library_ ? library_->device(bus_id) : nullptr;
  if (!device || !library_->field_values) return found;
  const auto field = [&](unsigned id, unsigned link) -> unsigned {
    FieldValue value{};
    value.field = id;
    value.scope = link;
    return library_->field_values(device, 1, &value) == 0 && value.status == 0 ? value.number : 0;
  };
  const unsigned count = std::min(field(c2c_link_count, 0), c2c_links_at_most);
  for (unsigned link = 0; link < count; ++link) {
    if (field(c2c_link_status, link) != 1) continue;
    ++found.links;
    found.gb_per_s += field(c2c_link_megabytes_per_s, link) / 1000.0;
  }
  return found;
}

std::optional<std::string> Nvml::pcie_path(const std::string& a, const std::string& b) const {
  const Handle from = library_ ? library_->device(a) : nullptr, to = library_ ? library_->device(b) : nullptr;
  unsigned level = 0;
  if (!from || !to || !library_->common_ancestor || library_->common_ancestor(from, to, &level) != 0) return std::nullopt;
  switch (level) {  // nvmlGpuTopologyLevel_t
    case 0: return "board";
    case 10: return "PIX";
    case 20: return "PXB";
    case 30: return "PHB";
    case 40: return "NODE";
    case 50: return "SYS";
    default: return std::nullopt;
  }
}

std::optional<std::string> Nvml::peer_obstacle(const std::string& a, const std::string& b) const {
  const Handle from = library_ ? library_->device(a) : nullptr, to = library_ ? library_->device(b) : nullptr;
  if (!from || !to || !library_->p2p_status) return std::nullopt;
  for (const int capability : {p2p_read, p2p_write}) {
    int status = 0;
    if (library_->p2p_status(from, to, capability, &status) != 0) return std::nullopt;
    if (status != 0) return words_of_peer_status(status);
  }
  return "";
}

}  // namespace plait::topology
