// The CUDA runtime calls that regions of all kinds need: peer access and pinning.
#include <cuda_runtime_api.h>

#include "comm/p2p/region_kinds.h"
#include "core/cuda_check.h"
#include "core/error.h"

namespace plait::comm::p2p {

void enable_peer_access(Device from, Device to) {
  if (from == to) return;
  make_current(from);
  const cudaError_t status = cudaDeviceEnablePeerAccess(to.index, 0);
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // a left-over error would fail the next launch's check
  if (status == cudaErrorPeerAccessAlreadyEnabled) return;
  throw DeviceError(to_string(from) + " cannot be given access to the memory of " + to_string(to) + ": " +
                    cudaGetErrorString(status) +
                    "; ACS on the PCIe bridges, an IOMMU, or a virtual machine without P2P passthrough may forbid it");
}

std::byte* pin(void* memory, std::size_t bytes, Device device) {
  const cudaError_t status = cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw DeviceError(to_string(device) + ": cannot pin " + std::to_string(bytes) +
                      " bytes of host memory: " + cudaGetErrorString(status) +
                      "; look at the limit on locked memory (ulimit -l) and the container's memory limit");
  }
  void* address = nullptr;
  const cudaError_t found = cudaHostGetDevicePointer(&address, memory, 0);
  if (found != cudaSuccess) {
    unpin(memory);
    check(found);
  }
  return static_cast<std::byte*>(address);
}

void unpin(void* memory) noexcept {
  if (cudaHostUnregister(memory) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

}  // namespace plait::comm::p2p
