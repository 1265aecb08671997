// Refuses mailboxes between GPUs in a build without CUDA.
#include "comm/p2p/facts.h"
#include "comm/p2p/mover.h"
#include "comm/p2p/region_kinds.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {
[[noreturn]] void refuse() { throw DeviceError("this plait was built without CUDA"); }
}  // namespace

void copy_by_kernel(StreamRef, void*, const void*, std::size_t, int) { refuse(); }
void copy_between_counters(StreamRef, std::span<const CountedCopy>, int, std::uint32_t*) { refuse(); }
void copy_all_by_kernel(StreamRef, std::span<const Copy>) { refuse(); }
void load_copying_kernels() { refuse(); }
void combine_by_kernel(StreamRef, View, std::span<const std::byte* const>, Reduction) { refuse(); }
void combine_between_counters(StreamRef, View, std::span<const CountedPart>, Reduction) { refuse(); }
void load_combining_kernels() { refuse(); }
void describe_gpu(Device, EndFacts&) { refuse(); }
void enable_peer_access(Device, Device) { refuse(); }
std::byte* pin(void*, std::size_t, Device) { refuse(); }
void unpin(void*) noexcept {}
std::unique_ptr<Region> make_ipc(const RegionSpec&) { refuse(); }
std::unique_ptr<Region> import_ipc(const RegionSpec&, HandleExchange&) { refuse(); }
std::unique_ptr<Region> make_vmm(const RegionSpec&) { refuse(); }
std::unique_ptr<Region> import_vmm(const RegionSpec&, HandleExchange&) { refuse(); }

}  // namespace plait::comm::p2p
