// Regions in device memory of cudaMalloc, shared by CUDA's IPC handles.
#include <span>
#include <utility>

#include "comm/p2p/cuda/vmm_driver.h"
#include "comm/p2p/region_kinds.h"
#include "core/error.h"
#include "core/stream.h"

namespace plait::comm::p2p {
namespace {

// cudaMalloc cuts small allocations out of blocks of this size, and a handle opens the block with all that is in it. A region
// that fills its blocks shows the peer nothing else.
constexpr std::size_t block = std::size_t{2} << 20;

// The exporter's word: a handle covers a whole allocation.
struct IpcHandle {
  cudaIpcMemHandle_t handle = {};
  std::size_t offset = 0, bytes = 0;
};

void declare(auto& field, Of<IpcHandle> auto& handle) {
  constexpr record::Whole bytes = record::whole(0, std::int64_t{1} << 48);
  field("handle", handle.handle, HexRule<cudaIpcMemHandle_t>());
  field("offset", handle.offset, bytes);
  field("bytes", handle.bytes, bytes);
}

struct Range {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
};

// The whole allocation that contains `memory`.
Range allocation_of(const void* memory) {
  const auto address_range = driver<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange", 3020);
  Range range;
  check(address_range(&range.base, &range.bytes, reinterpret_cast<CUdeviceptr>(memory)), "cuMemGetAddressRange");
  return range;
}

class ExportedIpcMemory final : public Region {
 public:
  explicit ExportedIpcMemory(const RegionSpec& spec)
      : memory_(spec.memory_on), buffer_(memory_.allocate((spec.bytes + block - 1) / block * block)) {
    const Stream stream(spec.memory_on);
    stream.ref().zero(buffer_.data(), buffer_.bytes());
    stream.ref().synchronize();
    data_ = static_cast<std::byte*>(buffer_.data());
    bytes_ = spec.bytes;
    make_current(spec.used_by);  // allocating made the memory's device current
    const cudaError_t status = cudaIpcGetMemHandle(&handle_.handle, data_);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      throw DeviceError("region '" + spec.name + "': " + to_string(spec.memory_on) +
                        " has no IPC handles for its memory: " + cudaGetErrorString(status));
    }
    handle_.offset = reinterpret_cast<CUdeviceptr>(data_) - allocation_of(data_).base;
    handle_.bytes = bytes_;
  }
  void offer(const std::string& name, HandleExchange& exchange) const override { exchange.give(name, handle_); }

 private:
  DeviceMemory memory_;
  Buffer buffer_;
  IpcHandle handle_;
};

class ImportedIpcMemory final : public Region {
 public:
  ImportedIpcMemory(const RegionSpec& spec, cudaIpcMemHandle_t handle, std::size_t offset) {
    const cudaError_t status = cudaIpcOpenMemHandle(&base_, handle, cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      throw DeviceError(
          "region '" + spec.name + "': " + to_string(spec.used_by) +
          " cannot open the peer's memory: " + cudaGetErrorString(status) +
          "; look at peer access between the two GPUs (`plait topo`), and whether the processes share their PID and "
          "IPC namespaces (docker --pid host --ipc host)");
    }
    try {
      const Range range = allocation_of(base_);
      if (offset > range.bytes || range.bytes - offset < spec.bytes) {
        throw CommError("region '" + spec.name + "': the peer's memory has " + std::to_string(range.bytes) +
                        " bytes, too few for " + std::to_string(spec.bytes) + " at " + std::to_string(offset));
      }
    } catch (...) {
      static_cast<void>(cudaIpcCloseMemHandle(base_));
      throw;
    }
    data_ = static_cast<std::byte*>(base_) + offset;
    bytes_ = spec.bytes;
  }
  ImportedIpcMemory(const ImportedIpcMemory&) = delete;
  ImportedIpcMemory& operator=(const ImportedIpcMemory&) = delete;
  ~ImportedIpcMemory() override {
    if (cudaIpcCloseMemHandle(base_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }

 private:
  void* base_ = nullptr;
};

}  // namespace

std::unique_ptr<Region> make_ipc(const RegionSpec& spec) {
  if (spec.used_by != spec.memory_on) enable_peer_access(spec.used_by, spec.memory_on);
  return std::make_unique<ExportedIpcMemory>(spec);
}

std::unique_ptr<Region> import_ipc(const RegionSpec& spec, HandleExchange& exchange) {
  const auto handle = exchange.take<IpcHandle>(spec.name);
  if (handle.bytes != spec.bytes) {
    exchange.refuse(spec.name, "it is of " + std::to_string(handle.bytes) + " bytes, not of " + std::to_string(spec.bytes));
  }
  return std::make_unique<ImportedIpcMemory>(spec, handle.handle, handle.offset);
}

}  // namespace plait::comm::p2p
