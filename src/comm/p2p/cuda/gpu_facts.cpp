#include "comm/p2p/facts.h"

#include "comm/p2p/cuda/vmm_driver.h"
#include "comm/word.h"
#include "core/error.h"
#include "core/stream.h"
#include "topology/gpu_path.h"

namespace plait::comm::p2p {
namespace {

bool has(Device device, CUdevice_attribute attribute) {
  CUdevice handle = 0;
  check(driver<decltype(&cuDeviceGet)>("cuDeviceGet", 2000)(&handle, device.index), "cuDeviceGet");
  int value = 0;
  const auto get = driver<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute", 2000);
  return get(&value, attribute, handle) == CUDA_SUCCESS && value != 0;  // an older driver does not know the attribute
}

// The driver lists the attribute if the GPU could; only trying shows whether this process may.
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

}  // namespace

void describe_gpu(Device device, EndFacts& facts) {
  facts.bus_id = topology::bus_id_of_gpu(device.index);
  facts.vmm = has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
              has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  facts.why_no_fabric = as_field(why_no_fabric(device));
  facts.fabric = facts.why_no_fabric.empty();
  facts.fabric_clique = topology::fabric_clique_of_gpu(facts.bus_id);
  facts.stream_memory_operations = has_stream_memory_operations(device);
}

}  // namespace plait::comm::p2p
