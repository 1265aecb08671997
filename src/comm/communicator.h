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
#include <memory>
#include <string>
#include <vector>

#include "comm/paths.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::comm {

enum class Reduction { sum, max };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place over `data`.
  virtual void all_reduce(StreamRef stream, View data, Reduction reduction = Reduction::sum) = 0;
  // In place over `data` of rank `root`; the data of the others stays as it is.
  virtual void reduce(StreamRef stream, View data, int root, Reduction reduction = Reduction::sum) = 0;
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
  virtual void broadcast(StreamRef stream, View data, int root) = 0;
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

}  // namespace plait::comm
