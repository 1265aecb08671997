#include "plan/placement/cost.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/index.h"
#include "core/units.h"

namespace plait::plan {
namespace {

bool sends(const RingTraffic& traffic) { return traffic.bytes > 0 || traffic.rounds > 0; }

double hops_seconds(const RingHops& hops, const RingTraffic& traffic) {
  return traffic.bytes / (hops.gb_per_s * 1e9) + traffic.rounds * hops.latency_us * 1e-6;
}

}  // namespace

bool PlacementCost::possible() const { return std::isfinite(seconds); }

RingHops best_hops(const Ring& ring, const RingTraffic& traffic) {
  RingHops best;
  double least = infinite;
  for (const RingHops& hops : ring.choices) {
    const double seconds = hops_seconds(hops, traffic);
    if (seconds < least) least = seconds, best = hops;
  }
  return best;
}

double ring_seconds(const Ring& ring, const RingTraffic& traffic) {
  double least = infinite;
  for (const RingHops& hops : ring.choices) least = std::min(least, hops_seconds(hops, traffic));
  return least;
}

std::vector<RingTraffic>& Traffic::of(const parallel::Group& group) {
  auto found = std::find_if(rings.begin(), rings.end(), [&](const GroupTraffic& g) { return g.group == group; });
  if (found == rings.end()) found = rings.insert(found, {group, std::vector<RingTraffic>(at(layout.size(stage_axis)))});
  return found->by_pipeline;
}

std::vector<RingTraffic> Traffic::of(const parallel::Group& group) const { return Traffic(*this).of(group); }

AxisCost PlacementCost::of(const parallel::Group& group) const {
  const auto found = rings.find(group);
  return found == rings.end() ? AxisCost{} : found->second;
}

AxisCost PlacementCost::along(Axis axis) const {
  AxisCost narrowest;
  for (const auto& [group, cost] : rings) {
    if (!group.axes.contains(axis) || cost.narrowest.from < 0) continue;
    if (narrowest.narrowest.from < 0 || cost.narrowest.gb_per_s < narrowest.narrowest.gb_per_s) narrowest = cost;
  }
  return narrowest;
}

double way_seconds(const topology::Way& way, double bytes) {
  return way.gb_per_s > 0 ? bytes / (way.gb_per_s * 1e9) : infinite;
}

void check_traffic(const Traffic& traffic) {
  const parallel::Layout& layout = traffic.layout;
  const auto amount = [](double value) { return std::isfinite(value) && value >= 0; };
  for (const GroupTraffic& of : traffic.rings) {
    require(of.by_pipeline.size() == at(layout.size(stage_axis)), "Traffic: one entry for each pipeline rank");
    for (const RingTraffic& ring : of.by_pipeline)
      require(amount(ring.bytes) && amount(ring.rounds), "Traffic: an amount is negative or not finite");
  }
  for (const int end : {traffic.ends.first, traffic.ends.last}) {
    require(end >= 0 && end < layout.size(stage_axis), "Traffic: an end of the model is on no pipeline rank");
  }
  for (const ChainTraffic& link : traffic.chain) {
    require(link.from >= 0 && link.from < layout.size(stage_axis) && link.to >= 0 && link.to < layout.size(stage_axis) &&
                link.from != link.to,
            "Traffic: a message from or to no other pipeline rank");
    require(amount(link.bytes) && amount(link.messages), "Traffic: an amount is negative or not finite");
  }
}

CostModel::CostModel(Rings& rings, const Traffic& traffic)
    : rings_(rings), traffic_(traffic), load_bytes_(fabric().channels().size(), 0), load_count_(fabric().channels().size(), 0) {
  check_traffic(traffic_);
  for (const GroupTraffic& of : traffic_.rings) {
    RingPhase phase{of.group, {}};
    for (int rank = 0; rank < traffic_.layout.ranks(); ++rank) {
      const RingTraffic& ring = of.by_pipeline[at(traffic_.layout.coordinate(rank, stage_axis))];
      if (!sends(ring) || traffic_.layout.lowest_member(of.group, rank, traffic_.ends) != rank) continue;
      std::vector<int> members = traffic_.layout.members(of.group, rank, traffic_.ends);
      if (members.size() > 1) phase.groups.push_back({std::move(members), ring});
    }
    if (!phase.groups.empty()) phases_.push_back(std::move(phase));
  }
}

void CostModel::check(const std::vector<int>& gpu_of_rank) const {
  require(gpu_of_rank.size() == at(traffic_.layout.ranks()), "a placement has one GPU for each rank");
  for (int gpu : gpu_of_rank) require(gpu >= 0 && gpu < rings_.fabric().gpus(), "a placement names a GPU that does not exist");
}

void CostModel::load(int channel, double bytes) {
  if (load_count_[at(channel)]++ == 0) loaded_.push_back(channel);
  load_bytes_[at(channel)] += bytes;
}

void CostModel::take_loads(AxisCost& cost) {
  for (int channel : loaded_) {
    if (load_count_[at(channel)] > 1) {
      const double seconds = load_bytes_[at(channel)] / (fabric().channels()[at(channel)].gb_per_s * 1e9);
      const bool first_of_equal = seconds == cost.seconds && cost.shared_channel > channel;
      if (seconds > cost.seconds || first_of_equal) {
        cost.seconds = seconds;
        cost.shared_channel = channel;
        cost.sharing = load_count_[at(channel)];
      }
    }
    load_bytes_[at(channel)] = 0;
    load_count_[at(channel)] = 0;
  }
  loaded_.clear();
}

AxisCost CostModel::of_rings(const std::vector<RingGroup>& groups, const std::vector<int>& gpu_of_rank, bool explain,
                             double enough) {
  AxisCost cost;
  ring_of_group_.clear();
  for (const RingGroup& group : groups) {
    members_.clear();
    for (int rank : group.ranks) members_.push_back(gpu_of_rank[at(rank)]);
    Ring& ring = rings_.of(members_);
    ring_of_group_.push_back(&ring);
    cost.seconds = std::max(cost.seconds, ring_seconds(ring, group.traffic));
    if (cost.seconds > enough) return cost;
    if (!explain) continue;
    const RingHops hops = best_hops(ring, group.traffic);
    if (ring.across.rings == 1 && cost.narrowest.from >= 0 && hops.gb_per_s >= cost.narrowest.gb_per_s) continue;
    for (const auto& [from, to] : rings_.hops(ring, hops)) {
      const topology::Way& way = fabric().way(from, to);
      if (cost.narrowest.from < 0 || way.gb_per_s < cost.narrowest.gb_per_s)
        cost.narrowest = {from, to, way.gb_per_s, way.link};
    }
  }
  if (groups.size() < 2 || !std::isfinite(cost.seconds)) return cost;
  // Counts all channels that rings may cross first, so that must_cross() is only asked where rings meet.
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (int channel : ring_of_group_[g]->channels) {
      if (load_count_[at(channel)]++ == 0) loaded_.push_back(channel);
    }
  }
  for (int channel : loaded_) load_count_[at(channel)] = load_count_[at(channel)] > 1 ? 0 : -1;
  const std::vector<int> candidates = std::move(loaded_);
  loaded_.clear();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Ring& ring = *ring_of_group_[g];
    for (std::size_t i = 0; i < ring.channels.size(); ++i) {
      if (load_count_[at(ring.channels[i])] >= 0 && rings_.must_cross(ring, i))
        load(ring.channels[i], ring.share(i) * groups[g].traffic.bytes);
    }
  }
  for (int channel : candidates) {
    if (load_count_[at(channel)] < 0) load_count_[at(channel)] = 0;
  }
  take_loads(cost);
  return cost;
}

AxisCost CostModel::of_pipeline(const std::vector<int>& gpu_of_rank, double& fill, double enough) {
  AxisCost cost;
  fill = 0;
  const parallel::Layout& layout = traffic_.layout;
  for (int first = 0; first < layout.ranks() && cost.seconds + fill <= enough; ++first) {
    if (layout.coordinate(first, stage_axis) > 0) continue;
    double filled = 0;
    for (const ChainTraffic& link : traffic_.chain) {
      if (link.bytes <= 0 && link.messages <= 0) continue;
      const int from = gpu_of_rank[at(layout.moved(first, stage_axis, link.from))],
                to = gpu_of_rank[at(layout.moved(first, stage_axis, link.to))];
      const topology::Way& way = fabric().message_way(from, to);
      cost.seconds = std::max(cost.seconds, way_seconds(way, link.bytes));
      filled += way_seconds(way, link.bytes / std::max(1.0, link.messages)) + way.latency_us * 1e-6;
      for (int channel : way.channels) load(channel, link.bytes);
      if (cost.narrowest.from < 0 || way.gb_per_s < cost.narrowest.gb_per_s)
        cost.narrowest = {from, to, way.gb_per_s, way.link};
    }
    fill = std::max(fill, filled);
  }
  take_loads(cost);
  cost.seconds += fill;
  return cost;
}

double CostModel::seconds(const std::vector<int>& gpu_of_rank) { return seconds(gpu_of_rank, infinite); }

double CostModel::seconds(const std::vector<int>& gpu_of_rank, double enough) {
  check(gpu_of_rank);
  double fill = 0;
  double sum = of_pipeline(gpu_of_rank, fill, enough).seconds;
  for (const RingPhase& phase : phases_) {
    if (sum > enough) break;
    sum += of_rings(phase.groups, gpu_of_rank, false, enough - sum).seconds;
  }
  return sum;
}

PlacementCost CostModel::cost(const std::vector<int>& gpu_of_rank) {
  check(gpu_of_rank);
  PlacementCost cost;
  cost.messages = of_pipeline(gpu_of_rank, cost.fill_seconds, infinite);
  cost.seconds = cost.messages.seconds;
  for (const RingPhase& phase : phases_)
    cost.seconds += (cost.rings[phase.kind] = of_rings(phase.groups, gpu_of_rank, true, infinite)).seconds;
  return cost;
}

PlacementCost cost_of(topology::Fabric& fabric, const Traffic& traffic, const std::vector<int>& gpu_of_rank) {
  Rings rings(fabric);
  return CostModel(rings, traffic).cost(gpu_of_rank);
}

}  // namespace plait::plan
