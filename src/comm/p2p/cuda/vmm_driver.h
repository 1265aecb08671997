// The driver's functions for virtual memory management.
#pragma once

#include "core/cuda_check.h"

namespace plait::comm::p2p {

template <typename Function>
Function driver(const char* name, int version) {
  return reinterpret_cast<Function>(driver_function(name, version));
}

// The oldest version of each function that plait can use; DeviceError where the driver is older.
struct VmmDriver {
  decltype(&cuMemGetAllocationGranularity) granularity =
      driver<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity", 10020);
  decltype(&cuMemCreate) create = driver<decltype(&cuMemCreate)>("cuMemCreate", 10020);
  decltype(&cuMemRelease) release = driver<decltype(&cuMemRelease)>("cuMemRelease", 10020);
  decltype(&cuMemAddressReserve) reserve = driver<decltype(&cuMemAddressReserve)>("cuMemAddressReserve", 10020);
  decltype(&cuMemAddressFree) free_address = driver<decltype(&cuMemAddressFree)>("cuMemAddressFree", 10020);
  decltype(&cuMemMap) map = driver<decltype(&cuMemMap)>("cuMemMap", 10020);
  decltype(&cuMemUnmap) unmap = driver<decltype(&cuMemUnmap)>("cuMemUnmap", 10020);
  decltype(&cuMemSetAccess) set_access = driver<decltype(&cuMemSetAccess)>("cuMemSetAccess", 10020);
  decltype(&cuMemExportToShareableHandle) export_handle =
      driver<decltype(&cuMemExportToShareableHandle)>("cuMemExportToShareableHandle", 10020);
  decltype(&cuMemImportFromShareableHandle) import_handle =
      driver<decltype(&cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle", 10020);
};

// Memory of `device` that can be exported by handles of `type`.
inline CUmemAllocationProp exportable_memory(int device, CUmemAllocationHandleType type) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = type;
  return properties;
}

}  // namespace plait::comm::p2p
