// A library with NVML's functions that tells of four GPUs, so that what plait makes of NVML is tested without a driver:
//
//   0000:01:00.0  0000:02:00.0   two NVLinks between them (lanes 0 and 1; lane 2 is down), one PCIe switch above both
//   0000:03:00.0  0000:04:00.0   three NVLinks each, to switches, whose PCI addresses nobody tells; behind a host bridge
//
// The last one has two C2C links of 448 GB/s, of which the second is down.
//
// Compute capability 9.0 but for the last, which does not tell. Peer access: between the first two; 03 -> 04 is disabled, 04 ->
// 03 unknown.
#include <cstdio>
#include <cstring>

namespace {

struct Device {
  const char* bus_id;
};
Device devices[] = {{"0000:01:00.0"}, {"0000:02:00.0"}, {"0000:03:00.0"}, {"0000:04:00.0"}};

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type, status;
  unsigned long long value;
};

constexpr int success = 0, invalid_argument = 2, not_supported = 3, not_found = 6;

long number(const Device* device) { return device - devices; }

}  // namespace

extern "C" {

int nvmlInit_v2() { return success; }
int nvmlShutdown() { return success; }
const char* nvmlErrorString(int) { return "an error"; }

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.82.07");
  return success;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 4;
  return success;
}

// Backwards, so that nobody relies on the order.
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (index > 3) return invalid_argument;
  *device = &devices[3 - index];
  return success;
}

int nvmlDeviceGetPciInfo_v3(Device* device, PciInfo* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id, "0000%s", device->bus_id);
  return success;
}

int nvmlDeviceGetName(Device*, char* text, unsigned length) {
  std::snprintf(text, length, "NVIDIA Fake");
  return success;
}

int nvmlDeviceGetCudaComputeCapability(Device* device, int* major, int* minor) {
  if (number(device) == 3) return not_supported;
  *major = 9;
  *minor = 0;
  return success;
}

int nvmlDeviceGetFieldValues(Device* device, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    const bool known = number(device) == 3 && values[i].scope < 2;
    values[i].status = known ? success : not_supported;
    if (!known) continue;
    if (values[i].field == 170)
      values[i].value = 2;
    else if (values[i].field == 171)
      values[i].value = values[i].scope == 0;
    else if (values[i].field == 172)
      values[i].value = 448000;
    else
      values[i].status = not_supported;
  }
  return success;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device** device) {
  for (Device& candidate : devices) {
    if (std::strcmp(candidate.bus_id, bus_id) != 0) continue;
    *device = &candidate;
    return success;
  }
  return not_found;
}

int nvmlDeviceGetNvLinkState(Device* device, unsigned lane, unsigned* up) {
  if (lane > 2) return invalid_argument;
  *up = number(device) >= 2 || lane < 2;
  return success;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Device* device, unsigned lane, unsigned* type) {
  if (lane > 2) return invalid_argument;
  *type = number(device) < 2 ? 0 : 2;
  return success;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device* device, unsigned lane, PciInfo* info) {
  if (number(device) >= 2 || lane > 1) return not_supported;
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02lX:00.0", 2 - number(device));
  return success;
}

int nvmlDeviceGetTopologyCommonAncestor(Device* a, Device* b, unsigned* level) {
  *level = number(a) < 2 && number(b) < 2 ? 10 : number(a) >= 2 && number(b) >= 2 ? 30 : 50;
  return success;
}

int nvmlDeviceGetP2PStatus(Device* a, Device* b, int capability, int* status) {
  if (number(a) < 2 && number(b) < 2) {
    *status = 0;
  } else if (number(a) == 2) {
    *status = capability == 1 ? 4 : 0;  // writing, but not reading
  } else {
    *status = 6;
  }
  return success;
}

}  // extern "C"
