// What a placement costs: the seconds of a step's communication, phase after phase and with nothing beside it. It is there to
// rank placements of one layout; what a step takes, with computing and overlap, is for the simulator to say.
//
// Ring phases, one for each kind of group: all groups of the kind run at once. A group takes bytes / bandwidth + rounds ×
// latency of the ring that suits it best, or of all its rings together where several carry it (rings.h). Groups whose rings
// must all cross one channel share it: the channel takes the sum of the bytes that they send over it / its bandwidth. The phase
// takes the slowest of these.
//
// Pipeline phase: the steady part is the slowest of all pairs (bytes / bandwidth of their way) and of all channels that several
// messages cross (the sum of their bytes / its bandwidth). The fill is one message of each kind after the other, of the slowest
// copy of the pipeline (one for each place along the other axes). So the weakest link decides, and of placements with equally
// weak ones the one with fewer of them is better: bridges are used even where some hop must be slow.
//
// The cost does not depend on the numbers of GPUs, but beyond exact_ring_members in a group, where the order of hosts and
// numbers is the ring, and where several rings carry it: they follow the hosts by number, and of members that are as far from
// the others and share a NIC the lowest leaves by it. While routes stay what they are, more bandwidth anywhere never makes it
// higher: every term falls with every bandwidth, and neither the choice of rings nor a tie decides which channels are shared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/placement/rings.h"
#include "plan/placement/traffic.h"
#include "topology/fabric.h"

namespace plait::plan {

// The narrowest way that an axis uses, in the ring or chain that the cost assumes. The two are -1 where the axis sends nothing.
struct NarrowestWay {
  int from = -1, to = -1;  // GPUs
  double gb_per_s = 0;
  std::string link;  // as Way::link; "none": there is no way
};

struct AxisCost {
  double seconds = 0;
  NarrowestWay narrowest;
  int shared_channel = -1;  // index into Fabric::channels() of the one that bounds the axis by being shared; else -1
  int sharing = 0;          // groups, or messages of a step's pipeline, that cross it
};

struct PlacementCost {
  double seconds = 0;  // of all; infinite if ranks that must communicate cannot
  std::map<parallel::Group, AxisCost> rings;
  AxisCost messages;        // between pipeline ranks
  double fill_seconds = 0;  // part of messages.seconds
  bool possible() const;
  // Of a kind of group: nothing, if it sends nothing.
  AxisCost of(const parallel::Group& group) const;
  // Of the kind of groups that differ along this axis and send something; of several, of the one with the narrowest way.
  AxisCost along(Axis axis) const;
};

// Costs of many placements of one layout.
class CostModel {
 public:
  // `rings` and the fabric that it has must outlive this. InternalError if `traffic` does not fit its layout.
  CostModel(Rings& rings, const Traffic& traffic);

  // gpu_of_rank: one GPU for each rank of the layout, none twice.
  double seconds(const std::vector<int>& gpu_of_rank);
  // The same, but it may stop as soon as it is above `enough`, and is then only known to be above that. Bad placements of large
  // clusters show with the first groups.
  double seconds(const std::vector<int>& gpu_of_rank, double enough);
  PlacementCost cost(const std::vector<int>& gpu_of_rank);

  const Traffic& traffic() const { return traffic_; }
  Rings& rings() { return rings_; }
  topology::Fabric& fabric() { return rings_.fabric(); }

  struct RingGroup {
    std::vector<int> ranks;
    RingTraffic traffic;
  };
  // All groups of a kind that send something. They run at once, and one kind after another.
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
  // The slowest of the loaded channels that several share; forgets all loads.
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

// Seconds of one ring with the order that suits `traffic` best, and which that is; infinite without any.
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
