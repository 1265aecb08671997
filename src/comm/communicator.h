// Collectives among a group of ranks, in stream order.
//
// A Communicator belongs to one rank and one group. Every rank of the group makes the same calls in the same order with equal
// counts; a group of size 1 is valid and its collectives are copies (or nothing), so callers never branch on the size.
// Calls enqueue and return: data is ready when the stream reaches that point. Calls on one communicator must be ordered among
// themselves (one stream, or streams joined by events).
// Element types: f32, f64, bf16, i32 for reductions; anything for the rest. Results of reductions are bitwise the same on all
// ranks of the group, and from run to run for the same group, backend and count.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous.h"
#include "core/device.h"
#include "core/names.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::comm {

// Paths are the ways that bytes take between the ranks of a group: the choices of a communicator or a link, in one form.

// The medium between the memory of two ranks, the closest first.
enum class Carrier {
  memory,  // nothing: CPUs of one process
  p2p,     // NVLink or PCIe: a GPU, its copy engine or a third GPU reads and writes the other's memory
  shm,     // memory of the host
  gdrdma,  // NICs that read and write the memory of GPUs (GPUDirect RDMA)
  net,     // a network, by way of host memory
};

struct PairPath {
  int from = 0, to = 0;  // ranks of the group
  Carrier carrier = Carrier::net;
  std::string via;   // in the backend's words: "P2P/CUMEM/read", "NET/IB/0/GDRDMA", "TCP", "vmm"
  int channels = 0;  // connections that go this way; 0: not counted
  friend bool operator==(const PairPath&, const PairPath&) = default;
};

// The paths that one rank knows. A pair may have more than one, on different channels.
struct Paths {
  std::string by;                            // "NCCL 2.28.9", "Gloo 0.5.0", "links"; "" if nothing moves
  std::vector<PairPath> pairs;               // from this rank
  std::vector<std::string> algorithms = {};  // of collectives that have connections: "ring", "tree", "nvls"; none: not told
  int channels = 0;                          // channels that a collective is spread over; 0: it is not, or unknown
  std::string unknown = {};                  // why the pairs are not known; "": they are
  friend bool operator==(const Paths&, const Paths&) = default;
};

// A group of ranks that communicate, as one of them sees it.
struct GroupSpec {
  std::string name;  // unique among the job's groups; prefixes the rendezvous keys
  int rank = 0;      // of this process or thread within the group
  int size = 1;
  Device device;  // where its data lives: cuda → NCCL, host → Gloo
  std::chrono::milliseconds timeout{60'000};
  // Needed for send and receive, which are InternalErrors otherwise. Every pair of ranks then connects while joining.
  bool point_to_point = false;
  int max_ctas = 0;  // NCCL: upper bound of thread blocks (SMs) a collective may take; 0 = NCCL's choice
  std::string host_interface = "127.0.0.1";  // Gloo: address to listen on; loopback unless configured
};

enum class Reduction { sum, max };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place over `data`.
  virtual void all_reduce(StreamRef stream, View data, Reduction reduction = Reduction::sum) = 0;
  // `part` receives this rank's slice (rank-th of size() equal slices) of the sum over ranks of `data`. data.elements() ==
  // part.elements() * size(). `part` may be that slice of `data` itself (in place); other slices of `data` are then undefined.
  virtual void reduce_scatter(StreamRef stream, View data, View part, Reduction reduction = Reduction::sum) = 0;
  // Like reduce_scatter with a sum, except that the last additions may be left to the caller, whose kernel may have more to
  // add. Returns the addends, to be added in this order, in fp32 where they are bf16: `part` alone if nothing is left to add.
  // They may be read in stream order until release_addends, which comes before any other call.
  virtual std::vector<View> reduce_scatter_addends(StreamRef stream, View data, View part) {
    reduce_scatter(stream, data, part);
    return {part};
  }
  virtual void release_addends(StreamRef) {}
  // data.elements() == part.elements() * size(). `part` may be this rank's slice of `data` (in place).
  virtual void all_gather(StreamRef stream, View part, View data) = 0;
  // all_gather for a `data` that has been free on every rank since that rank's previous call, in which all ranks waited for
  // each other. So parts may arrive at any time after that call.
  virtual void all_gather_into_free(StreamRef stream, View part, View data) { all_gather(stream, part, data); }
  // Slice i of `send` goes to rank i; slice j of `receive` comes from rank j. Not in place.
  virtual void all_to_all(StreamRef stream, View send, View receive) = 0;
  // One message to or from a peer, which is not this rank itself. Messages between two ranks in one direction match in order
  // and must agree in size; a send may wait (on the stream) until its receive is reached.
  virtual void send(StreamRef stream, View data, int to) = 0;
  virtual void receive(StreamRef stream, View data, int from) = 0;
  // The ways by which bytes go from this rank to the others, as far as they are known once the group is made; constant for its
  // life.
  virtual Paths paths() const = 0;
  // Makes pending and future calls fail on this rank soon, from any thread, so that streams drain after a peer died.
  virtual void abort() noexcept = 0;
};

// Collective over the group. All ranks make their groups in the same order. CommError on failure or time-out. Ranks that share
// more than one group must also destroy them in the same order, since NCCL then waits for peers in other processes.
std::unique_ptr<Communicator> make_communicator(const GroupSpec& spec, Rendezvous& store);

// A function that makes communicators as make_communicator does.
using CommunicatorMaker = std::function<std::shared_ptr<Communicator>(const GroupSpec&, Rendezvous&)>;

// "NCCL 2.28.9" or "Gloo 0.5.0".
std::string backend_name(DeviceKind kind);

// A group of one rank, on any device: its collectives are copies, or nothing.
std::unique_ptr<Communicator> make_single_rank_communicator(const GroupSpec& spec);

// A rank of a group without the other ranks, to measure its computation without their devices. Its collectives exchange
// nothing: this rank's data stand in for everyone's. A gather repeats its part and a reduction keeps it, so values stay of
// ordinary size and about as many bytes move in the device's memory as with peers. A gather is one kernel, as a push to all
// peers is. There is nobody to send to or receive from (InternalError).
std::unique_ptr<Communicator> make_absent_communicator(int rank, int size);

}  // namespace plait::comm

namespace plait {

template <>
inline constexpr auto names<comm::Carrier> = std::to_array<Name<comm::Carrier>>({{comm::Carrier::memory, "memory"},
                                                                                 {comm::Carrier::p2p, "p2p"},
                                                                                 {comm::Carrier::shm, "shm"},
                                                                                 {comm::Carrier::gdrdma, "gdrdma"},
                                                                                 {comm::Carrier::net, "net"}});

}  // namespace plait
