// Regions in device memory of cuMemCreate: shared by itself, without the rest of a cudaMalloc allocation, and alive until the
// last process has unmapped it.
#include <spdlog/fmt/fmt.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/p2p/cuda/vmm_driver.h"
#include "comm/p2p/region_kinds.h"
#include "core/error.h"
#include "core/format.h"
#include "core/stream.h"

namespace plait::comm::p2p {
namespace {

// Sizes are rounded up to the exporter's granularity, some MiB; a larger difference cannot be rounding.
constexpr std::size_t most_rounding = std::size_t{1} << 30;

// The exporter's word. A file descriptor travels separately.
struct VmmHandle {
  std::size_t length = 0;
  bool fabric = false;
  CUmemFabricHandle of_fabric = {};
};

void declare(auto& field, Of<VmmHandle> auto& handle) {
  field("length", handle.length, record::whole(1, std::int64_t{1} << 62));
  field("fabric", handle.fabric);
  if (handle.fabric) field("handle", handle.of_fabric, HexRule<CUmemFabricHandle>());
}

// A reference to physical memory; a mapping keeps the memory without it.
class Allocation {
 public:
  explicit Allocation(const VmmDriver& driver) : driver_(driver) {}
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() {
    if (handle != 0) static_cast<void>(driver_.release(handle));
  }

  CUmemGenericAllocationHandle handle = 0;

 private:
  const VmmDriver& driver_;
};

class VmmMemory final : public Region {
 public:
  VmmMemory(const VmmDriver& driver, const Allocation& allocation, std::size_t length, std::size_t bytes,
            const std::vector<Device>& users)
      : driver_(driver), length_(length) {
    check(driver_.reserve(&address_, length_, 0, 0, 0), "cuMemAddressReserve");
    try {
      // Fails if the memory has another size.
      check(driver_.map(address_, length_, 0, allocation.handle, 0), "cuMemMap");
      mapped_ = true;
      std::vector<CUmemAccessDesc> access;
      for (const Device& user : users) {
        CUmemAccessDesc& entry = access.emplace_back();
        entry.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        entry.location.id = user.index;
        entry.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      }
      check(driver_.set_access(address_, length_, access.data(), access.size()), "cuMemSetAccess");
    } catch (...) {
      unmap();
      throw;
    }
    data_ = reinterpret_cast<std::byte*>(address_);
    bytes_ = bytes;
  }
  VmmMemory(const VmmMemory&) = delete;
  VmmMemory& operator=(const VmmMemory&) = delete;
  ~VmmMemory() override { unmap(); }

  void can_be_offered(const VmmHandle& handle, FileDescriptor descriptor) {
    handle_ = handle, descriptor_ = std::move(descriptor);
  }
  void offer(const std::string& name, HandleExchange& exchange) const override {
    if (!handle_) return Region::offer(name, exchange);
    exchange.give(name, *handle_);
    if (!handle_->fabric) exchange.give_descriptor(name + "/descriptor", descriptor_.get());
  }

 private:
  void unmap() noexcept {
    if (mapped_) static_cast<void>(driver_.unmap(address_, length_));
    static_cast<void>(driver_.free_address(address_, length_));
  }

  const VmmDriver driver_;
  CUdeviceptr address_ = 0;
  std::size_t length_;
  bool mapped_ = false;
  std::optional<VmmHandle> handle_;  // if it was made here
  FileDescriptor descriptor_;        // unless shared by fabric
};

CUmemAllocationHandleType handle_type(const RegionSpec& spec) {
  return spec.fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

// Adds the region and what to check to the driver's error.
template <typename Work>
auto explained(const RegionSpec& spec, const char* what, const Work& work) {
  try {
    return work();
  } catch (const DeviceError& error) {
    throw DeviceError("region '" + spec.name + "' of " + format_bytes(static_cast<double>(spec.bytes)) + " for " +
                      to_string(spec.used_by) + ": cannot " + what + ": " + error.what() +
                      "; look at the GPU's free memory, at peer access between the two GPUs (`plait topo`), and whether the "
                      "container may use both (/dev/nvidia*, seccomp)");
  }
}

void zero(Device device, std::byte* memory, std::size_t bytes) {
  const Stream stream(device);
  stream.ref().zero(memory, bytes);
  stream.ref().synchronize();
}

}  // namespace

std::unique_ptr<Region> make_vmm(const RegionSpec& spec) {
  return explained(spec, "make memory to share", [&] {
    const VmmDriver driver;
    const CUmemAllocationProp properties = exportable_memory(spec.memory_on.index, handle_type(spec));
    std::size_t granularity = 0;
    check(driver.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "cuMemGetAllocationGranularity");
    VmmHandle handle{.length = (spec.bytes + granularity - 1) / granularity * granularity, .fabric = spec.fabric};
    Allocation allocation(driver);
    check(driver.create(&allocation.handle, handle.length, &properties, 0), "cuMemCreate");
    std::vector<Device> users = {spec.memory_on};  // that device clears the memory
    if (spec.used_by != spec.memory_on) users.push_back(spec.used_by);
    auto memory = std::make_unique<VmmMemory>(driver, allocation, handle.length, spec.bytes, users);
    zero(spec.memory_on, memory->data(), handle.length);
    make_current(spec.used_by);
    FileDescriptor descriptor;
    if (spec.fabric) {
      check(driver.export_handle(&handle.of_fabric, allocation.handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
            "cuMemExportToShareableHandle");
    } else {
      int exported = -1;
      check(driver.export_handle(&exported, allocation.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "cuMemExportToShareableHandle");
      descriptor = FileDescriptor(exported);
    }
    memory->can_be_offered(handle, std::move(descriptor));
    return memory;
  });
}

std::unique_ptr<Region> import_vmm(const RegionSpec& spec, HandleExchange& exchange) {
  auto peers = exchange.take<VmmHandle>(spec.name);
  if (peers.length < spec.bytes || peers.length - spec.bytes > most_rounding) {
    exchange.refuse(spec.name, fmt::format("{} bytes of memory for a region of {}", peers.length, spec.bytes));
  }
  if (peers.fabric != spec.fabric) exchange.refuse(spec.name, "the handle is not of the kind that this end expects");
  const FileDescriptor descriptor = spec.fabric ? FileDescriptor() : exchange.take_descriptor(spec.name + "/descriptor");
  return explained(spec, "use the peer's memory", [&] {
    const VmmDriver driver;
    Allocation allocation(driver);
    void* const handle = spec.fabric ? &peers.of_fabric : reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
    check(driver.import_handle(&allocation.handle, handle, handle_type(spec)), "cuMemImportFromShareableHandle");
    // Access is for this end's own GPU, so the memory may belong to a GPU that this process does not see.
    return std::make_unique<VmmMemory>(driver, allocation, peers.length, spec.bytes, std::vector<Device>{spec.used_by});
  });
}

}  // namespace plait::comm::p2p
