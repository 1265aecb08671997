#include "comm/p2p/region.h"

#include "comm/p2p/region_kinds.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

void check_spec(const RegionSpec& spec) {
  require(!spec.name.empty() && spec.bytes > 0, "a region needs a name and a size");
  switch (spec.kind) {
    case RegionKind::thread_memory:
      require(spec.memory_on.kind == spec.used_by.kind,
              "region '" + spec.name + "': for GPUs host memory is RegionKind::host_memory");
      return;
    case RegionKind::host_memory:
      require(!spec.memory_on.is_cuda(), "region '" + spec.name + "': host memory is not a GPU's");
      return;
    case RegionKind::ipc:
    case RegionKind::vmm:
      require(spec.memory_on.is_cuda() && spec.used_by.is_cuda(),
              "region '" + spec.name + "': ipc and vmm are for GPUs' memory");
      return;
  }
}

}  // namespace

void Region::offer(const std::string& name, HandleExchange&) const {
  throw InternalError("region '" + name + "': only who has made the memory can offer it");
}

std::unique_ptr<Region> make_region(const RegionSpec& spec) {
  check_spec(spec);
  switch (spec.kind) {
    case RegionKind::thread_memory: return make_thread_memory(spec);
    case RegionKind::ipc: return make_ipc(spec);
    case RegionKind::vmm: return make_vmm(spec);
    case RegionKind::host_memory: return make_host_memory(spec);
  }
  throw InternalError("region '" + spec.name + "' is of no kind");
}

std::unique_ptr<Region> export_region(const RegionSpec& spec, HandleExchange& exchange) {
  std::unique_ptr<Region> region = make_region(spec);
  region->offer(spec.name, exchange);
  return region;
}

std::unique_ptr<Region> import_region(const RegionSpec& spec, HandleExchange& exchange) {
  check_spec(spec);
  switch (spec.kind) {
    case RegionKind::thread_memory: return import_thread_memory(spec, exchange);
    case RegionKind::ipc: return import_ipc(spec, exchange);
    case RegionKind::vmm: return import_vmm(spec, exchange);
    case RegionKind::host_memory: return import_host_memory(spec, exchange);
  }
  throw InternalError("region '" + spec.name + "' is of no kind");
}

}  // namespace plait::comm::p2p
