// The kinds of regions of GPUs, one pair of functions each. Private to src/comm/p2p; callers use region.h. Defined in cuda/, or
// in no_cuda.cpp where plait is built without CUDA (those throw DeviceError).
#pragma once

#include <memory>

#include "comm/p2p/region.h"

namespace plait::comm::p2p {

std::unique_ptr<Region> make_ipc(const RegionSpec& spec);
std::unique_ptr<Region> import_ipc(const RegionSpec& spec, HandleExchange& exchange);
std::unique_ptr<Region> make_vmm(const RegionSpec& spec);
std::unique_ptr<Region> import_vmm(const RegionSpec& spec, HandleExchange& exchange);

// Lets `from` address the memory of `to`; both are GPUs of this process. Does nothing if they are the same.
void enable_peer_access(Device from, Device to);
// Locks host memory in place for every GPU of the process; returns its address on `device`.
std::byte* pin(void* memory, std::size_t bytes, Device device);
void unpin(void* memory) noexcept;

}  // namespace plait::comm::p2p
