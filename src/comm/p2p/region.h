// A region is memory of one end of a mailbox that the other end can see too.
//
// One rank makes a region and offers it to its peers, who import it; the kind says how the memory becomes visible. Each end
// holds its Region. The memory lives until all have released it, except for `ipc`: there the importers must release it first
// (see ~Link).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/p2p/handle_exchange.h"
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

}  // namespace plait::comm::p2p
