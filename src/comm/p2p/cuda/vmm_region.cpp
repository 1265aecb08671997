// Device memory by cuMemCreate: shared by itself, without the rest of what cudaMalloc has in the same allocation, and alive
// until the last process has unmapped it.
#include <utility>
#include <vector>

#include "comm/p2p/cuda/hex.h"
#include "comm/p2p/cuda/vmm_driver.h"
#include "comm/p2p/region_kinds.h"
#include "core/error.h"
#include "core/stream.h"

namespace plait::comm::p2p {
namespace {

// Sizes are rounded up to the exporter's granularity, some MiB; more than that is nobody's rounding.
constexpr std::int64_t most_rounding = std::int64_t{1} << 30;

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
      // Refused where the memory is of another size.
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

 private:
  void unmap() noexcept {
    if (mapped_) static_cast<void>(driver_.unmap(address_, length_));
    static_cast<void>(driver_.free_address(address_, length_));
  }

  const VmmDriver driver_;
  CUdeviceptr address_ = 0;
  std::size_t length_;
  bool mapped_ = false;
};

CUmemAllocationHandleType handle_type(const RegionSpec& spec) {
  return spec.fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

// The driver's words, with the region and what to look at.
template <typename Work>
auto explained(const RegionSpec& spec, const char* what, const Work& work) {
  try {
    return work();
  } catch (const DeviceError& error) {
    throw DeviceError("region '" + spec.name + "' of " + std::to_string(spec.bytes) + " bytes for " + to_string(spec.used_by) +
                      ": cannot " + what + ": " + error.what() +
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

std::unique_ptr<Region> export_vmm(const RegionSpec& spec, HandleExchange& exchange) {
  FieldWriter fields;
  FileDescriptor descriptor;
  auto region = explained(spec, "make memory to share", [&] {
    const VmmDriver driver;
    const CUmemAllocationProp properties = exportable_memory(spec.memory_on.index, handle_type(spec));
    std::size_t granularity = 0;
    check(driver.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "cuMemGetAllocationGranularity");
    const std::size_t length = (spec.bytes + granularity - 1) / granularity * granularity;
    Allocation allocation(driver);
    check(driver.create(&allocation.handle, length, &properties, 0), "cuMemCreate");
    std::vector<Device> users = {spec.memory_on};  // it clears the memory
    if (spec.used_by != spec.memory_on) users.push_back(spec.used_by);
    auto memory = std::make_unique<VmmMemory>(driver, allocation, length, spec.bytes, users);
    zero(spec.memory_on, memory->data(), length);
    make_current(spec.used_by);
    fields.integer("length", static_cast<std::int64_t>(length));
    fields.flag("fabric", spec.fabric);
    if (spec.fabric) {
      CUmemFabricHandle handle{};
      check(driver.export_handle(&handle, allocation.handle, CU_MEM_HANDLE_TYPE_FABRIC, 0), "cuMemExportToShareableHandle");
      fields.text("handle", to_hex(handle));
    } else {
      int exported = -1;
      check(driver.export_handle(&exported, allocation.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "cuMemExportToShareableHandle");
      descriptor = FileDescriptor(exported);
    }
    return memory;
  });
  exchange.give_text(spec.name, fields.written());
  if (!spec.fabric) exchange.give_descriptor(spec.name + "/descriptor", descriptor.get());
  return region;
}

std::unique_ptr<Region> import_vmm(const RegionSpec& spec, HandleExchange& exchange) {
  FieldReader fields(exchange.take_text(spec.name), "region '" + spec.name + "'");
  const auto least = static_cast<std::int64_t>(spec.bytes);
  const auto length = static_cast<std::size_t>(fields.integer("length", least, least + most_rounding));
  if (fields.flag("fabric") != spec.fabric) fields.refuse("fabric", "is not what this end expects");
  CUmemFabricHandle fabric_handle{};
  if (spec.fabric) fabric_handle = handle_from<CUmemFabricHandle>(fields, "handle");
  fields.end();
  const FileDescriptor descriptor = spec.fabric ? FileDescriptor() : exchange.take_descriptor(spec.name + "/descriptor");
  return explained(spec, "use the peer's memory", [&] {
    const VmmDriver driver;
    Allocation allocation(driver);
    void* const handle = spec.fabric ? &fabric_handle : reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
    check(driver.import_handle(&allocation.handle, handle, handle_type(spec)), "cuMemImportFromShareableHandle");
    // Access is for this end's own GPU, so the memory may be of one that this process does not see.
    return std::make_unique<VmmMemory>(driver, allocation, length, spec.bytes, std::vector<Device>{spec.used_by});
  });
}

}  // namespace plait::comm::p2p
