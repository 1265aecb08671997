// Seconds of messages and collectives: a start, the latencies of the rounds, and the bytes at the speed of the way. Where
// curves were measured, they replace the first two and bound the last.
#pragma once

#include <string>

#include "parallel/rank_plan.h"
#include "plan/machine.h"
#include "plan/simulation/work.h"
#include "topology/fabric.h"

namespace plait::plan {

// What a group communicates by: the slowest way of its ring.
struct RingSpeed {
  double gb_per_s = 0, latency_us = 0;
};

// The fastest ring that each axis can have; a speed of 0 means that the axis costs nothing.
using AxisSpeeds = AxisArray<RingSpeed>;
// Of groups along these axes: the slowest of those that have several ranks.
RingSpeed slowest_of(const AxisSpeeds& speeds, const AxisSizes& mesh, AxisSet axes);

enum class Collective { all_reduce, reduce_scatter, all_gather };
std::string to_string(Collective kind);

// Of a tensor over a ring of n ranks: what each member sends to the next, as a share of the tensor, and in how many messages
// one after the other (Patarasuk and Yuan 2009). Nothing for a group of one.
double ring_share(Collective kind, int ranks);
double ring_rounds(Collective kind, int ranks);
// By links (comm/p2p/link_communicator.h): pushes to all others go at once. What each member sends, and in how many rounds.
double push_bytes(Collective kind, int ranks, double bytes);
double push_rounds(Collective kind, int ranks, double bytes);

class CommunicationCosts {
 public:
  explicit CommunicationCosts(const Machine& machine) : machine_(machine) {}  // keeps a reference

  // A message of `bytes` on this way. (On the receiver: with 0 bytes.)
  Work message(double bytes, const topology::Way& way) const;
  // A collective over a tensor of `bytes`, for the simulator, which knows the way. `latency_us`: of a round; measured curves
  // have it in them.
  Work collective(Collective kind, int ranks, double bytes, double latency_us = 0) const;
  // The same where it goes by links (comm/p2p/link_communicator.h): each rank pushes to each other what that one needs, up to
  // `longest_by_kernel` bytes to all by one kernel, more by copy engines; and, with kernels, what becomes of it there.
  Work pushes(Collective kind, int ranks, double bytes, double latency_us, std::size_t longest_by_kernel) const;
  Work pushes_with_kernels(Collective kind, int ranks, double bytes, double latency_us, std::size_t longest_by_kernel) const;
  // Those: one reads all parts and writes their sum, others take what was gathered to where it belongs.
  struct PushKernels {
    double seconds = 0;  // launches and all
    double device = 0;   // of that, what they take of the device
  };
  PushKernels push_kernels(Collective kind, int ranks, double bytes) const;
  // Of either among ranks that nothing disturbs.
  double seconds(Collective kind, int ranks, double bytes, const RingSpeed& ring,
                 const parallel::CollectiveChoice& by = {}) const;

 private:
  const Curve* curve_of(Collective kind, int ranks) const;
  const Curve* curve_of(const topology::Way& way) const;
  // Where the way is not known yet, whose speed bounds the rest.
  const Curve* fastest_message_curve(double bytes) const;
  const Machine& machine_;
};

}  // namespace plait::plan
