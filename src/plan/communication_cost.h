// Seconds of messages and collectives: a start, the latencies of the rounds, and the bytes at the bandwidth of the way.
// Measured curves replace the first two and bound the last.
#pragma once

#include <string>

#include "parallel/rank_plan.h"
#include "plan/machine.h"
#include "plan/simulation/work.h"
#include "topology/fabric.h"

namespace plait::plan {

// The bandwidth and latency of a group's ring, set by its slowest way.
struct RingSpeed {
  double gb_per_s = 0, latency_us = 0;
};

// The fastest ring that each axis can have; a speed of 0 means that the axis costs nothing.
using AxisSpeeds = AxisArray<RingSpeed>;
// The slowest ring among groups along these axes; axes of one rank do not count.
RingSpeed slowest_of(const AxisSpeeds& speeds, const AxisSizes& mesh, AxisSet axes);

enum class Collective { all_reduce, reduce_scatter, all_gather };
std::string to_string(Collective kind);

// A ring collective over n ranks (Patarasuk and Yuan 2009): the bytes that each member sends to the next, as a share of the
// tensor, and the number of messages that follow one another. Both are 0 for a group of one.
double ring_share(Collective kind, int ranks);
double ring_rounds(Collective kind, int ranks);
// A collective by links (comm/p2p/link_communicator.h): each member pushes to all others at once. The bytes that each member
// sends, and the number of rounds.
double push_bytes(Collective kind, int ranks, double bytes);
double push_rounds(Collective kind, int ranks, double bytes);

class CommunicationCosts {
 public:
  explicit CommunicationCosts(const Machine& machine) : machine_(machine) {}  // keeps a reference

  // A message of `bytes` on this way. (The receiver's side: 0 bytes.)
  Work message(double bytes, const topology::Way& way) const;
  // A collective over a tensor of `bytes`, for the simulator, which knows the way. `latency_us`: of one round; measured curves
  // include it.
  Work collective(Collective kind, int ranks, double bytes, double latency_us = 0) const;
  // The same collective by links (comm/p2p/link_communicator.h): each rank pushes to every other rank the part that it needs.
  // One kernel pushes up to `longest_by_kernel` bytes to all; copy engines push longer parts. pushes_with_kernels() adds the
  // kernels that work on the pushed parts (push_kernels).
  Work pushes(Collective kind, int ranks, double bytes, double latency_us, std::size_t longest_by_kernel) const;
  Work pushes_with_kernels(Collective kind, int ranks, double bytes, double latency_us, std::size_t longest_by_kernel) const;
  // The kernels after the pushes: one reads all parts and writes their sum, another moves gathered parts to their destination.
  struct PushKernels {
    double seconds = 0;  // with launches
    double device = 0;   // the part of `seconds` that occupies the device
  };
  PushKernels push_kernels(Collective kind, int ranks, double bytes) const;
  // Seconds of a collective by library or by links, among ranks that nothing else disturbs.
  double seconds(Collective kind, int ranks, double bytes, const RingSpeed& ring,
                 const parallel::CollectiveChoice& by = {}) const;

 private:
  const Curve* curve_of(Collective kind, int ranks) const;
  const Curve* curve_of(const topology::Way& way) const;
  // For collectives whose way is not known yet; its bandwidth bounds the rest.
  const Curve* fastest_message_curve(double bytes) const;
  const Machine& machine_;
};

}  // namespace plait::plan
