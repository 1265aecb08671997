// Memory that each rank of a group has and all the others can write to, equally large on all: an offset means the same thing on
// all ranks (as in NVSHMEM).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/p2p/region.h"
#include "comm/rendezvous.h"
#include "core/choices.h"

namespace plait::comm::p2p {

// The region kind that lets many ranks see the memory in which this transport's messages arrive; nullopt if there is none.
std::optional<RegionKind> symmetric_kind(Transport transport, DeviceKind device);

struct SymmetricMemorySpec {
  std::string name;                             // unique in the job; the same on all
  RegionKind kind = RegionKind::thread_memory;  // the same on all
  std::size_t bytes = 0;                        // the same on all
  Device device;                                // this rank's, current on the calling thread
  std::vector<int> members;                     // ranks of the job, in the order of the group
  int rank = 0;                                 // of the group
  std::chrono::milliseconds timeout{60'000};
};

class SymmetricMemory {
 public:
  // Collective over the group, pair by pair in one order. Errors as for regions.
  SymmetricMemory(const SymmetricMemorySpec& spec, Rendezvous& store);

  // The memory of a rank of the group, as this rank addresses it. Lives until all ranks have released it.
  std::byte* of(int rank) const { return regions_[static_cast<std::size_t>(rank)]->data(); }
  std::size_t bytes() const { return bytes_; }

 private:
  const std::size_t bytes_;
  std::vector<std::unique_ptr<Region>> regions_;  // by rank
};

}  // namespace plait::comm::p2p
