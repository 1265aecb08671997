// A region is memory of one end of a mailbox that the other end can see too.
//
// One rank makes a region and offers it to its peers, who import it; the kind says how the memory becomes visible. Each end
// holds its Region. The memory lives until all have released it, except for `ipc`: there the importers must release it first
// (see ~Link).
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/p2p/handle_exchange.h"
#include "comm/rendezvous.h"
#include "core/choices.h"
#include "core/device.h"

namespace plait::comm::p2p {

enum class RegionKind {
  thread_memory,  // one process: the memory itself, by the exchange's give_object. Memory of a GPU with peer access, or of the
                  // host
  ipc,            // device memory by cudaIpcGetMemHandle; the handle covers a whole allocation, so base and offset travel
  vmm,            // device memory by cuMemCreate and a POSIX file descriptor (or a fabric handle, where permitted)
  host_memory,    // host memory: a memfd that both map (nothing in /dev/shm to be left behind), pinned for GPUs on both ends;
};  // within one process as between two

class Region {
 public:
  virtual ~Region() = default;
  std::byte* data() const { return data_; }  // as this end's device sees it
  std::size_t bytes() const { return bytes_; }
  // For a region made here: tells a peer, who imports it under this name, how to see it. For vmm and host_memory it returns
  // when the peer has taken it, so both ends must handle their regions in the same order.
  virtual void offer(const std::string& name, HandleExchange& exchange) const;

 protected:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct RegionSpec {
  RegionKind kind = RegionKind::thread_memory;
  std::string name;       // unique in the job; both ends give the same to export_region and import_region
  std::size_t bytes = 0;  // both ends give the same
  Device memory_on;       // the owner of the memory, numbered as in the exporter's process; the host for host_memory
  Device used_by;         // this end's device, which must be current on the calling thread
  bool fabric = false;    // vmm: pass a fabric handle instead of a file descriptor (EndFacts::fabric of both ends)
};

// One end makes the memory and offers it; the other imports it. It is zeroed before it is visible. A DeviceError or CommError
// says what the system refused and what to check.
std::unique_ptr<Region> make_region(const RegionSpec& spec);
std::unique_ptr<Region> export_region(const RegionSpec& spec, HandleExchange& exchange);  // makes it, and offers it by its name
std::unique_ptr<Region> import_region(const RegionSpec& spec, HandleExchange& exchange);

// Memory that each rank of a group has and all the others can write to, equally large on all: an offset means the same thing on
// all ranks (as in NVSHMEM).

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
