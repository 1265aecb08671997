#include "topology/nvml.h"

#include <dlfcn.h>
#include <nvml.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/device.h"

namespace plait::topology {
namespace {

constexpr unsigned c2c_links_at_most = 32;
constexpr unsigned gpus_at_most = 1024;
constexpr unsigned lanes_at_most = 36;  // Blackwell has 18; asking for a lane that does not exist is an error

// By bit. An idle GPU, and clocks set by the user, are not throttling.
struct ThrottleReason {
  unsigned long long bit;
  const char* name;
};
constexpr std::array throttle_reasons = {ThrottleReason{nvmlClocksThrottleReasonSwPowerCap, "sw_power_cap"},
                                         ThrottleReason{nvmlClocksThrottleReasonHwSlowdown, "hw_slowdown"},
                                         ThrottleReason{nvmlClocksThrottleReasonSyncBoost, "sync_boost"},
                                         ThrottleReason{nvmlClocksThrottleReasonSwThermalSlowdown, "sw_thermal_slowdown"},
                                         ThrottleReason{nvmlClocksThrottleReasonHwThermalSlowdown, "hw_thermal_slowdown"},
                                         ThrottleReason{nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "hw_power_brake"}};

std::optional<std::string> words_of_peer_status(nvmlGpuP2PStatus_t status) {
  switch (status) {
    case NVML_P2P_STATUS_OK: return std::string();
    case NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED: return "the chipset does not support it";
    case NVML_P2P_STATUS_GPU_NOT_SUPPORTED: return "the GPU does not support it";
    case NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: return "the PCIe topology does not support it";
    case NVML_P2P_STATUS_DISABLED_BY_REGKEY: return "it is disabled by the driver's registry key";
    case NVML_P2P_STATUS_NOT_SUPPORTED: return "the driver does not support it here";
    default: return std::nullopt;
  }
}

}  // namespace

// The functions as nvml.h declares them; null if this driver lacks one.
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
    find(fabric_info, "nvmlDeviceGetGpuFabricInfoV");
    find(clock_info, "nvmlDeviceGetClockInfo");
    find(power_usage, "nvmlDeviceGetPowerUsage");
    find(temperature, "nvmlDeviceGetTemperature");
    find(energy, "nvmlDeviceGetTotalEnergyConsumption");
    find(memory_info, "nvmlDeviceGetMemoryInfo");
    find(core_count, "nvmlDeviceGetNumGpuCores");
    find(mig_mode, "nvmlDeviceGetMigMode");
    find(performance_state, "nvmlDeviceGetPerformanceState");
    find(throttling, "nvmlDeviceGetCurrentClocksThrottleReasons");
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

  nvmlDevice_t device(const std::string& bus_id) const {
    nvmlDevice_t handle = nullptr;
    return handle_by_bus_id && handle_by_bus_id(bus_id.c_str(), &handle) == NVML_SUCCESS ? handle : nullptr;
  }

  void* library;
  bool started = false;
  decltype(&nvmlInit_v2) init = nullptr;
  decltype(&nvmlShutdown) shutdown = nullptr;
  decltype(&nvmlErrorString) error_string = nullptr;
  decltype(&nvmlSystemGetDriverVersion) system_driver_version = nullptr;
  decltype(&nvmlDeviceGetCount_v2) device_count = nullptr;
  decltype(&nvmlDeviceGetHandleByIndex_v2) handle_by_index = nullptr;
  decltype(&nvmlDeviceGetPciInfo_v3) pci_info = nullptr;
  decltype(&nvmlDeviceGetName) device_name = nullptr;
  decltype(&nvmlDeviceGetCudaComputeCapability) compute_capability = nullptr;
  decltype(&nvmlDeviceGetHandleByPciBusId_v2) handle_by_bus_id = nullptr;
  decltype(&nvmlDeviceGetNvLinkState) nvlink_state = nullptr;
  decltype(&nvmlDeviceGetNvLinkRemotePciInfo_v2) nvlink_remote = nullptr;
  decltype(&nvmlDeviceGetNvLinkRemoteDeviceType) nvlink_remote_type = nullptr;
  decltype(&nvmlDeviceGetFieldValues) field_values = nullptr;
  decltype(&nvmlDeviceGetTopologyCommonAncestor) common_ancestor = nullptr;
  decltype(&nvmlDeviceGetP2PStatus) p2p_status = nullptr;
  decltype(&nvmlDeviceGetGpuFabricInfoV) fabric_info = nullptr;
  decltype(&nvmlDeviceGetClockInfo) clock_info = nullptr;
  decltype(&nvmlDeviceGetPowerUsage) power_usage = nullptr;
  nvmlReturn_t (*temperature)(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned*) = nullptr;
  decltype(&nvmlDeviceGetTotalEnergyConsumption) energy = nullptr;
  decltype(&nvmlDeviceGetMemoryInfo) memory_info = nullptr;
  decltype(&nvmlDeviceGetNumGpuCores) core_count = nullptr;
  decltype(&nvmlDeviceGetMigMode) mig_mode = nullptr;
  decltype(&nvmlDeviceGetPerformanceState) performance_state = nullptr;
  nvmlReturn_t (*throttling)(nvmlDevice_t, unsigned long long*) = nullptr;
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
  if (const nvmlReturn_t status = found->init(); status != NVML_SUCCESS) {
    why_missing_ = std::string("NVML does not start: ") + (found->error_string ? found->error_string(status) : "unknown error");
    return;
  }
  found->started = true;
  library_ = std::move(found);
}

Nvml::~Nvml() = default;

std::optional<std::string> Nvml::driver_version() const {
  std::array<char, 81> text{};
  const bool known = library_ && library_->system_driver_version &&
                     library_->system_driver_version(text.data(), text.size() - 1) == NVML_SUCCESS;
  return known ? std::optional<std::string>(text.data()) : std::nullopt;
}

std::vector<std::string> Nvml::gpus() const {
  std::vector<std::string> found;
  unsigned count = 0;
  const bool possible = library_ && library_->device_count && library_->handle_by_index && library_->pci_info;
  if (!possible || library_->device_count(&count) != NVML_SUCCESS) return found;
  for (unsigned i = 0; i < std::min(count, gpus_at_most); ++i) {
    nvmlDevice_t device = nullptr;
    nvmlPciInfo_t info{};
    // A GPU without permission, or fallen off the bus, is skipped.
    if (library_->handle_by_index(i, &device) != NVML_SUCCESS || library_->pci_info(device, &info) != NVML_SUCCESS) continue;
    info.busId[sizeof info.busId - 1] = '\0';
    if (const auto bus_id = bus_id_from(info.busId)) found.push_back(*bus_id);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<std::string> Nvml::name(const std::string& bus_id) const {
  std::array<char, 97> text{};
  const nvmlDevice_t device = library_ ? library_->device(bus_id) : nullptr;
  const bool known =
      device && library_->device_name && library_->device_name(device, text.data(), text.size() - 1) == NVML_SUCCESS;
  return known ? std::optional<std::string>(text.data()) : std::nullopt;
}

std::optional<std::string> Nvml::model(const std::string& bus_id) const {
  const nvmlDevice_t device = library_ ? library_->device(bus_id) : nullptr;
  int major = 0, minor = 0;
  if (!device || !library_->compute_capability || library_->compute_capability(device, &major, &minor) != NVML_SUCCESS)
    return std::nullopt;
  return "sm" + std::to_string(major) + std::to_string(minor);
}

GpuTraits Nvml::traits(const std::string& bus_id) const {
  GpuTraits traits;
  const nvmlDevice_t device = library_ ? library_->device(bus_id) : nullptr;
  if (!device) return traits;
  traits.name = name(bus_id).value_or("");
  nvmlMemory_t memory{};
  if (library_->memory_info && library_->memory_info(device, &memory) == NVML_SUCCESS)
    traits.memory_bytes = static_cast<std::int64_t>(memory.total);
  unsigned value = 0, pending = 0;
  if (library_->core_count && library_->core_count(device, &value) == NVML_SUCCESS) traits.cores = static_cast<int>(value);
  if (library_->mig_mode && library_->mig_mode(device, &value, &pending) == NVML_SUCCESS)
    traits.mig = value == NVML_DEVICE_MIG_ENABLE;
  nvmlPstates_t state = NVML_PSTATE_UNKNOWN;
  if (library_->performance_state && library_->performance_state(device, &state) == NVML_SUCCESS &&
      state != NVML_PSTATE_UNKNOWN)
    traits.performance_state = static_cast<int>(state);
  return traits;
}

bool Nvml::knows(const std::string& bus_id) const { return library_ && library_->device(bus_id); }

std::vector<NvLink> Nvml::nvlinks(const std::string& bus_id) const {
  std::vector<NvLink> links;
  const nvmlDevice_t device = library_ ? library_->device(bus_id) : nullptr;
  if (!device || !library_->nvlink_state) return links;
  for (unsigned lane = 0; lane < lanes_at_most; ++lane) {
    nvmlEnableState_t up = NVML_FEATURE_DISABLED;
    if (library_->nvlink_state(device, lane, &up) != NVML_SUCCESS || up != NVML_FEATURE_ENABLED) continue;
    NvLink link;
    link.lane = static_cast<int>(lane);
    nvmlPciInfo_t remote{};
    if (library_->nvlink_remote && library_->nvlink_remote(device, lane, &remote) == NVML_SUCCESS) {
      remote.busId[sizeof remote.busId - 1] = '\0';
      link.bus_id = bus_id_from(remote.busId).value_or("");
    }
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    if (library_->nvlink_remote_type && library_->nvlink_remote_type(device, lane, &type) == NVML_SUCCESS) {
      link.end = type == NVML_NVLINK_DEVICE_TYPE_GPU      ? NvLinkEnd::gpu
                 : type == NVML_NVLINK_DEVICE_TYPE_SWITCH ? NvLinkEnd::nvswitch
                                                          : NvLinkEnd::other;
    } else if (!link.bus_id.empty() && knows(link.bus_id)) {
      link.end = NvLinkEnd::gpu;
    }
    links.push_back(std::move(link));
  }
  return links;
}

C2cLinks Nvml::c2c_links(const std::string& bus_id) const {
  C2cLinks found;
  const nvmlDevice_t device = library_ ? library_->device(bus_id) : nullptr;
  if (!device || !library_->field_values) return found;
  const auto field = [&](unsigned id, unsigned link) -> unsigned {
    nvmlFieldValue_t value{};
    value.fieldId = id;
    value.scopeId = link;
    const bool known = library_->field_values(device, 1, &value) == NVML_SUCCESS && value.nvmlReturn == NVML_SUCCESS;
    return known ? value.value.uiVal : 0;
  };
  const unsigned count = std::min(field(NVML_FI_DEV_C2C_LINK_COUNT, 0), c2c_links_at_most);
  for (unsigned link = 0; link < count; ++link) {
    if (field(NVML_FI_DEV_C2C_LINK_GET_STATUS, link) != 1) continue;
    ++found.links;
    found.gb_per_s += field(NVML_FI_DEV_C2C_LINK_GET_MAX_BW, link) / 1000.0;
  }
  return found;
}

std::string Nvml::fabric_clique(const std::string& bus_id) const {
  const nvmlDevice_t device = library_ ? library_->device(bus_id) : nullptr;
  // Uses the second version of the struct, which more drivers know; the third only appends to it.
  nvmlGpuFabricInfoV_t info{};
  info.version = nvmlGpuFabricInfo_v2;
  if (!device || !library_->fabric_info || library_->fabric_info(device, &info) != NVML_SUCCESS) return "";
  if (info.state != NVML_GPU_FABRIC_STATE_COMPLETED || info.status != NVML_SUCCESS) return "";
  // All zero: NVSwitches of one host.
  const auto& cluster = info.clusterUuid;
  if (std::all_of(std::begin(cluster), std::end(cluster), [](unsigned char byte) { return byte == 0; })) return "";
  return fmt::format("{:02x}/{}", fmt::join(cluster, ""), info.cliqueId);
}

GpuConditions Nvml::conditions(const std::string& bus_id) const {
  GpuConditions now;
  const nvmlDevice_t device = library_ ? library_->device(bus_id) : nullptr;
  if (!device) return now;
  unsigned value = 0;
  unsigned long long wide = 0;
  if (library_->clock_info && library_->clock_info(device, NVML_CLOCK_SM, &value) == NVML_SUCCESS) now.sm_clock_mhz = value;
  if (library_->power_usage && library_->power_usage(device, &value) == NVML_SUCCESS) now.power_w = value / 1e3;
  if (library_->temperature && library_->temperature(device, NVML_TEMPERATURE_GPU, &value) == NVML_SUCCESS)
    now.temperature_c = value;
  if (library_->energy && library_->energy(device, &wide) == NVML_SUCCESS) now.energy_j = static_cast<double>(wide) / 1e3;
  if (library_->throttling && library_->throttling(device, &wide) == NVML_SUCCESS) {
    for (const ThrottleReason& reason : throttle_reasons) {
      if ((wide & reason.bit) != 0) now.throttle_reasons.emplace_back(reason.name);
    }
  }
  return now;
}

std::optional<std::string> Nvml::pcie_path(const std::string& a, const std::string& b) const {
  const nvmlDevice_t from = library_ ? library_->device(a) : nullptr, to = library_ ? library_->device(b) : nullptr;
  nvmlGpuTopologyLevel_t level = NVML_TOPOLOGY_SYSTEM;
  if (!from || !to || !library_->common_ancestor || library_->common_ancestor(from, to, &level) != NVML_SUCCESS)
    return std::nullopt;
  switch (level) {
    case NVML_TOPOLOGY_INTERNAL: return "board";
    case NVML_TOPOLOGY_SINGLE: return "PIX";
    case NVML_TOPOLOGY_MULTIPLE: return "PXB";
    case NVML_TOPOLOGY_HOSTBRIDGE: return "PHB";
    case NVML_TOPOLOGY_NODE: return "NODE";
    case NVML_TOPOLOGY_SYSTEM: return "SYS";
    default: return std::nullopt;
  }
}

std::optional<std::string> Nvml::peer_obstacle(const std::string& a, const std::string& b) const {
  const nvmlDevice_t from = library_ ? library_->device(a) : nullptr, to = library_ ? library_->device(b) : nullptr;
  if (!from || !to || !library_->p2p_status) return std::nullopt;
  for (const nvmlGpuP2PCapsIndex_t capability : {NVML_P2P_CAPS_INDEX_READ, NVML_P2P_CAPS_INDEX_WRITE}) {
    nvmlGpuP2PStatus_t status = NVML_P2P_STATUS_UNKNOWN;
    if (library_->p2p_status(from, to, capability, &status) != NVML_SUCCESS) return std::nullopt;
    if (status != NVML_P2P_STATUS_OK) return words_of_peer_status(status);
  }
  return "";
}

}  // namespace plait::topology
