// A library with NVML's functions that tells of four GPUs, so that what plait makes of NVML is tested without a driver:
//
//   0000:01:00.0  0000:02:00.0   two NVLinks between them (lanes 0 and 1; lane 2 is down), one PCIe switch above both
//   0000:03:00.0  0000:04:00.0   three NVLinks each, to switches, whose PCI addresses nobody tells; behind a host bridge
//
// The first two have joined partition 7 of an NVLink fabric of several hosts; the third's cluster has no name, as where the
// switches are of one host, and the last is still joining.
//
// The last one has two C2C links of 448 GB/s, of which the second is down.
//
// They have 16896 cores and 80 GiB. What PLAIT_FAKE_NVML_MIG names is in MIG mode, what PLAIT_FAKE_NVML_BUSY names has its
// clocks up.
//
// Compute capability 9.0 but for the last, which does not tell. Peer access: between the first two; 03 -> 04 is disabled, 04 ->
// 03 unknown.
#include <nvml.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

// What a handle points to.
struct nvmlDevice_st {
  const char* bus_id;
};

namespace {

nvmlDevice_st devices[] = {{"0000:01:00.0"}, {"0000:02:00.0"}, {"0000:03:00.0"}, {"0000:04:00.0"}};

long number(nvmlDevice_t device) { return device - devices; }

bool names(const char* variable, nvmlDevice_t device) {
  const char* const list = std::getenv(variable);
  return list && std::strstr(list, device->bus_id);
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t* info) {
  if (info->version != nvmlGpuFabricInfo_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const long n = number(device);
  std::memset(info->clusterUuid, 0, sizeof info->clusterUuid);
  if (n != 2) {
    info->clusterUuid[0] = 0xab;
    info->clusterUuid[15] = 0x01;
  }
  info->cliqueId = 7;
  info->status = NVML_SUCCESS;
  info->state = n == 3 ? NVML_GPU_FABRIC_STATE_IN_PROGRESS : NVML_GPU_FABRIC_STATE_COMPLETED;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }
const char* nvmlErrorString(nvmlReturn_t) { return "an error"; }

nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.82.07");
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 4;
  return NVML_SUCCESS;
}

// Backwards, so that nobody relies on the order.
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (index > 3) return NVML_ERROR_INVALID_ARGUMENT;
  *device = &devices[3 - index];
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* info) {
  std::snprintf(info->busId, sizeof info->busId, "0000%s", device->bus_id);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char* text, unsigned length) {
  std::snprintf(text, length, "NVIDIA Fake");
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  memory->total = 80ull << 30;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t, unsigned* cores) {
  *cores = 16896;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* now, unsigned* later) {
  *now = *later = names("PLAIT_FAKE_NVML_MIG", device) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* state) {
  *state = names("PLAIT_FAKE_NVML_BUSY", device) ? NVML_PSTATE_0 : NVML_PSTATE_8;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  if (number(device) == 3) return NVML_ERROR_NOT_SUPPORTED;
  *major = 9;
  *minor = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) {
    const bool known = number(device) == 3 && values[i].scopeId < 2;
    values[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    if (!known) continue;
    switch (values[i].fieldId) {
      case NVML_FI_DEV_C2C_LINK_COUNT: values[i].value.uiVal = 2; break;
      case NVML_FI_DEV_C2C_LINK_GET_STATUS: values[i].value.uiVal = values[i].scopeId == 0; break;
      case NVML_FI_DEV_C2C_LINK_GET_MAX_BW: values[i].value.uiVal = 448000; break;
      default: values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  for (nvmlDevice_st& candidate : devices) {
    if (std::strcmp(candidate.bus_id, bus_id) != 0) continue;
    *device = &candidate;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned lane, nvmlEnableState_t* up) {
  if (lane > 2) return NVML_ERROR_INVALID_ARGUMENT;
  *up = number(device) >= 2 || lane < 2 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned lane, nvmlIntNvLinkDeviceType_t* type) {
  if (lane > 2) return NVML_ERROR_INVALID_ARGUMENT;
  *type = number(device) < 2 ? NVML_NVLINK_DEVICE_TYPE_GPU : NVML_NVLINK_DEVICE_TYPE_SWITCH;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned lane, nvmlPciInfo_t* info) {
  if (number(device) >= 2 || lane > 1) return NVML_ERROR_NOT_SUPPORTED;
  std::snprintf(info->busId, sizeof info->busId, "00000000:%02lX:00.0", 2 - number(device));
  return NVML_SUCCESS;
}

// The second one throttles; the last one tells nothing.
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
  if (number(device) == 3 || type != NVML_CLOCK_SM) return NVML_ERROR_NOT_SUPPORTED;
  *mhz = number(device) == 1 ? 1200 : 1980;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  if (number(device) == 3) return NVML_ERROR_NOT_SUPPORTED;
  *milliwatts = 650'500;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t, unsigned* celsius) {
  if (number(device) == 3) return NVML_ERROR_NOT_SUPPORTED;
  *celsius = 61;
  return NVML_SUCCESS;
}

// 70 J more every time that it is asked.
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* millijoules) {
  static unsigned long long asked[4] = {};
  if (number(device) == 3) return NVML_ERROR_NOT_SUPPORTED;
  *millijoules = 70'000 * ++asked[number(device)];
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
  if (number(device) == 3) return NVML_ERROR_NOT_SUPPORTED;
  *reasons = number(device) == 1 ? nvmlClocksThrottleReasonSwPowerCap | nvmlClocksThrottleReasonHwThermalSlowdown
                                 : nvmlClocksThrottleReasonGpuIdle;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t* level) {
  *level = number(a) < 2 && number(b) < 2     ? NVML_TOPOLOGY_SINGLE
           : number(a) >= 2 && number(b) >= 2 ? NVML_TOPOLOGY_HOSTBRIDGE
                                              : NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t capability,
                                    nvmlGpuP2PStatus_t* status) {
  if (number(a) < 2 && number(b) < 2) {
    *status = NVML_P2P_STATUS_OK;
  } else if (number(a) == 2) {
    *status = capability == NVML_P2P_CAPS_INDEX_WRITE ? NVML_P2P_STATUS_DISABLED_BY_REGKEY
                                                      : NVML_P2P_STATUS_OK;  // writing, but not reading
  } else {
    *status = NVML_P2P_STATUS_UNKNOWN;
  }
  return NVML_SUCCESS;
}

}  // extern "C"
