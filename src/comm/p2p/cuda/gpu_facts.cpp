#include "comm/p2p/gpu_facts.h"

#include <array>

#include "comm/p2p/cuda/vmm_driver.h"
#include "comm/p2p/text_fields.h"
#include "comm/topology/bus_id.h"
#include "comm/topology/nvml.h"
#include "core/error.h"
#include "core/stream.h"

namespace plait::comm::p2p {
namespace {

std::string bus_id_of(int ordinal) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), text.size(), ordinal));
  const auto bus_id = topology::bus_id_from(text.data());
  if (!bus_id) throw DeviceError("CUDA's GPU " + std::to_string(ordinal) + " has no PCI address but '" + text.data() + "'");
  return *bus_id;
}

bool has(Device device, CUdevice_attribute attribute) {
  CUdevice handle = 0;
  check(driver<decltype(&cuDeviceGet)>("cuDeviceGet", 2000)(&handle, device.index), "cuDeviceGet");
  int value = 0;
  const auto get = driver<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute", 2000);
  return get(&value, attribute, handle) == CUDA_SUCCESS && value != 0;  // an older driver does not know the attribute
}

// The driver lists the attribute where the GPU could; whether this process may is seen by doing it.
std::string why_no_fabric(Device device) {
  if (!has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) return "the GPU or its driver has no fabric handles";
  try {
    const VmmDriver vmm;
    const CUmemAllocationProp properties = exportable_memory(device.index, CU_MEM_HANDLE_TYPE_FABRIC);
    std::size_t granularity = 0;
    check(vmm.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "cuMemGetAllocationGranularity");
    CUmemGenericAllocationHandle memory = 0;
    check(vmm.create(&memory, granularity, &properties, 0), "cuMemCreate");
    CUmemFabricHandle handle{};
    const CUresult exported = vmm.export_handle(&handle, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    static_cast<void>(vmm.release(memory));
    check(exported, "cuMemExportToShareableHandle");
  } catch (const DeviceError& error) {
    return std::string(error.what()) +
           "; fabric handles need the IMEX service and its channel (/dev/nvidia-caps-imex-channels)";
  }
  return "";
}

bool has_stream_memory_operations(Device device) {
  try {
    DeviceMemory memory(device);
    const Buffer buffer = memory.allocate(sizeof(std::uint32_t));
    auto* const counter = static_cast<std::uint32_t*>(buffer.data());
    const Stream stream(device);
    stream.ref().write_value(counter, 1);
    stream.ref().wait_value(counter, 1);
    stream.ref().synchronize();
    return true;
  } catch (const DeviceError&) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
}

bool can_access(int from, int to) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, from, to));
  return can != 0;
}

int peer_attribute(cudaDeviceP2PAttr attribute, int from, int to) {
  int value = 0;
  check(cudaDeviceGetP2PAttribute(&value, attribute, from, to));
  return value;
}

// The GPU's ordinal in this process, or -1 where it does not see the GPU.
int ordinal_of(const std::string& bus_id) {
  int ordinal = -1;
  if (cudaDeviceGetByPCIBusId(&ordinal, bus_id.c_str()) == cudaSuccess) return ordinal;
  static_cast<void>(cudaGetLastError());
  return -1;
}

void add_nvlinks(const topology::Nvml& nvml, const std::string& from, const std::string& to, PathFacts& facts) {
  const auto at_switches = [](const std::vector<topology::NvLink>& links) {
    int count = 0;
    for (const topology::NvLink& link : links) count += link.end == topology::NvLinkEnd::nvswitch;
    return count;
  };
  const std::vector<topology::NvLink> links = nvml.nvlinks(from);
  for (const topology::NvLink& link : links) facts.nvlinks += link.end == topology::NvLinkEnd::gpu && link.bus_id == to;
  if (facts.nvlinks > 0 || at_switches(nvml.nvlinks(to)) == 0) return;
  facts.nvlinks = at_switches(links);
  facts.nvswitch = facts.nvlinks > 0;
}

}  // namespace

void describe_gpu(Device device, EndFacts& facts) {
  facts.bus_id = bus_id_of(device.index);
  facts.vmm = has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
              has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  facts.why_no_fabric = as_field(why_no_fabric(device));
  facts.fabric = facts.why_no_fabric.empty();
  facts.stream_memory_operations = has_stream_memory_operations(device);
}

PathFacts gpu_path(const EndFacts& from, const EndFacts& to) {
  PathFacts facts;
  const int here = from.ordinal;
  const int there = ordinal_of(to.bus_id);
  facts.visible = there >= 0;
  facts.same_memory = from.bus_id == to.bus_id;
  static const topology::Nvml nvml;  // opening it takes longer than all questions about a pair
  if (facts.same_memory) {
    facts.peer_access = facts.native_atomics = true;
  } else {
    const auto obstacle = nvml.peer_obstacle(from.bus_id, to.bus_id);
    facts.peer_access = facts.visible ? can_access(here, there) : obstacle == "";
    if (!facts.peer_access) facts.why_no_access = as_field(obstacle.value_or(""));
    if (facts.visible) {
      facts.native_atomics = peer_attribute(cudaDevP2PAttrNativeAtomicSupported, here, there) != 0;
      facts.performance_rank = peer_attribute(cudaDevP2PAttrPerformanceRank, here, there);
    }
    facts.pcie_path = nvml.pcie_path(from.bus_id, to.bus_id).value_or("");
    add_nvlinks(nvml, from.bus_id, to.bus_id, facts);
  }
  const int count = cuda_device_count();
  for (int bridge = 0; bridge < count; ++bridge) {
    const bool between =
        bridge != here && bridge != there && can_access(here, bridge) && (there < 0 || can_access(there, bridge));
    if (between) facts.bridges.push_back(bus_id_of(bridge));
  }
  return facts;
}

}  // namespace plait::comm::p2p
