// The cost of a placement: the seconds of a step's communication, one phase after another with nothing beside it. It ranks
// placements of one layout; the simulator predicts the step, with compute and overlap.
//
// Ring phases, one for each kind of group: all groups of the kind run at once. A group takes bytes / bandwidth + rounds ×
// latency of the ring that suits it best, or of all its rings together where several carry it (rings.h). Groups whose rings
// must all cross one channel share it: the channel takes the sum of the bytes that they send over it / its bandwidth. The phase
// takes the slowest of these.
//
// Pipeline phase: the steady part is the slowest of all pairs (bytes / bandwidth of their way) and of all channels that several
// messages cross (the sum of their bytes / its bandwidth). The fill is one message of each kind after the other, in the slowest
// copy of the pipeline (one for each place along the other axes). So the weakest link decides, and among placements with
// equally weak ones, fewer of them are better: bridges are used even where some hop must be slow.
//
// The cost does not depend on the numbers of GPUs, with two exceptions: beyond exact_ring_members in a group, the ring is in
// the order of hosts and numbers; and several rings of one group follow the hosts by number, and of members that share a NIC
// and are equally far from the others, the lowest leaves by it. With unchanged routes, more bandwidth anywhere never raises the
// cost: every term falls with every bandwidth, and neither the choice of rings nor a tie decides which channels are shared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/placement/rings.h"
#include "plan/placement/traffic.h"
#include "topology/fabric.h"

namespace plait::plan {

// The narrowest way that an axis uses, in the ring or chain that the cost assumes. `from` and `to` are -1 if the axis sends
// nothing.
struct NarrowestWay {
  int from = -1, to = -1;  // GPUs
  double gb_per_s = 0;
  std::string link;  // as Way::link; "none": there is no way
};

struct AxisCost {
  double seconds = 0;
  NarrowestWay narrowest;
  int shared_channel = -1;  // index into Fabric::channels() of the shared channel that bounds the axis; else -1
  int sharing = 0;          // groups, or messages of a step's pipeline, that cross the channel
};

struct PlacementCost {
  double seconds = 0;  // of all; infinite if ranks that must communicate cannot
  std::map<parallel::Group, AxisCost> rings;
  AxisCost messages;        // between pipeline ranks
  double fill_seconds = 0;  // part of messages.seconds
  bool possible() const;
  // The cost of a kind of group; zero if it sends nothing.
  AxisCost of(const parallel::Group& group) const;
  // The cost of the kind of groups that span this axis and send something; with several kinds, the one with the narrowest way.
  AxisCost along(Axis axis) const;
};

// Costs of many placements of one layout.
class CostModel {
 public:
  // `rings` and its fabric must outlive this. InternalError if `traffic` does not fit its layout.
  CostModel(Rings& rings, const Traffic& traffic);

  // gpu_of_rank: one GPU for each rank of the layout, none twice.
  double seconds(const std::vector<int>& gpu_of_rank);
  // The same, but may stop as soon as it exceeds `enough`; the result is then only known to exceed it. The first groups already
  // show that a placement of a large cluster is bad.
  double seconds(const std::vector<int>& gpu_of_rank, double enough);
  PlacementCost cost(const std::vector<int>& gpu_of_rank);

  const Traffic& traffic() const { return traffic_; }
  Rings& rings() { return rings_; }
  topology::Fabric& fabric() { return rings_.fabric(); }

  struct RingGroup {
    std::vector<int> ranks;
    RingTraffic traffic;
  };
  // All sending groups of one kind. They run at once; the kinds run one after another.
  struct RingPhase {
    parallel::Group kind;
    std::vector<RingGroup> groups;
  };
  const std::vector<RingPhase>& phases() const { return phases_; }

 private:
  AxisCost of_rings(const std::vector<RingGroup>& groups, const std::vector<int>& gpu_of_rank, bool explain, double enough);
  AxisCost of_pipeline(const std::vector<int>& gpu_of_rank, double& fill, double enough);
  void check(const std::vector<int>& gpu_of_rank) const;
  void load(int channel, double bytes);
  // Raises the cost to the slowest loaded channel that several share; clears all loads.
  void take_loads(AxisCost& cost);

  Rings& rings_;
  Traffic traffic_;
  std::vector<RingPhase> phases_;
  std::vector<double> load_bytes_;  // by channel
  std::vector<int> load_count_;     // by channel
  std::vector<int> loaded_;         // channels with a load
  std::vector<int> members_;
  std::vector<Ring*> ring_of_group_;
};

// Seconds of one ring in the order that suits `traffic` best, and the hops of that order; infinite if there is no ring.
double ring_seconds(const Ring& ring, const RingTraffic& traffic);
RingHops best_hops(const Ring& ring, const RingTraffic& traffic);
// Seconds of one message of `bytes` over a way; infinite if there is no way.
double way_seconds(const topology::Way& way, double bytes);

// InternalError if `traffic` does not fit its layout: wrong counts, pipeline ranks that do not exist, negative or not finite
// amounts.
void check_traffic(const Traffic& traffic);

// For a single placement.
PlacementCost cost_of(topology::Fabric& fabric, const Traffic& traffic, const std::vector<int>& gpu_of_rank);

}  // namespace plait::plan
