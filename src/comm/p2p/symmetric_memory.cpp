#include "comm/p2p/symmetric_memory.h"

#include "comm/meeting.h"
#include "comm/p2p/handle_exchange.h"

namespace plait::comm::p2p {

std::optional<RegionKind> symmetric_kind(Transport transport, DeviceKind device) {
  switch (transport) {
    case Transport::direct: return RegionKind::thread_memory;
    case Transport::vmm: return RegionKind::vmm;
    case Transport::host: return device == DeviceKind::host ? std::optional(RegionKind::host_memory) : std::nullopt;
    case Transport::ipc:    // its importers would have to release it first
    case Transport::relay:  // as with host memory between GPUs, data does not arrive where it is read
    case Transport::nccl: break;
  }
  return std::nullopt;
}

SymmetricMemory::SymmetricMemory(const SymmetricMemorySpec& spec, Rendezvous& store) : bytes_(spec.bytes) {
  const auto own = static_cast<std::size_t>(spec.rank);
  RegionSpec region{
      .kind = spec.kind, .name = spec.name, .bytes = spec.bytes, .memory_on = spec.device, .used_by = spec.device};
  regions_.resize(spec.members.size());
  regions_[own] = make_region(region);
  for (std::size_t low = 0; low < spec.members.size(); ++low) {
    for (std::size_t high = low + 1; high < spec.members.size(); ++high) {
      if (low != own && high != own) continue;
      const std::vector<int> pair{spec.members[low], spec.members[high]};
      const std::string name = spec.name + "." + std::to_string(pair[0]) + "." + std::to_string(pair[1]);
      Meeting meeting(store, name, spec.members[own], pair, spec.timeout);
      HandleExchange exchange(meeting);
      const auto offer = [&] { regions_[own]->offer(name, exchange); };
      const auto import = [&] {
        region.name = name;
        regions_[own == low ? high : low] = import_region(region, exchange);
      };
      own == low ? offer() : import();
      own == low ? import() : offer();
    }
  }
}

}  // namespace plait::comm::p2p
