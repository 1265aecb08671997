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

double way_seconds(const topology::Way& way, double bytes) {
  return way.gb_per_s > 0 ? bytes / (way.gb_per_s * 1e9) : infinite;
}

void check_traffic(const Traffic& traffic) {
  const parallel::Layout& layout = traffic.layout;
  require(layout.pipeline > 0 && layout.data > 0 && layout.tensor > 0, "Traffic: the layout has an axis without ranks");
  const auto amount = [](double value) { return std::isfinite(value) && value >= 0; };
  for (const std::vector<RingTraffic>* axis : {&traffic.tensor, &traffic.data}) {
    require(axis->empty() || axis->size() == at(layout.pipeline), "Traffic: one entry for each pipeline rank, or none");
    for (const RingTraffic& ring : *axis)
      require(amount(ring.bytes) && amount(ring.rounds), "Traffic: an amount is negative or not finite");
  }
  require(amount(traffic.tied.bytes) && amount(traffic.tied.rounds), "Traffic: an amount is negative or not finite");
  for (const int end : {traffic.ends.first, traffic.ends.last}) {
    require(end >= 0 && end < layout.pipeline, "Traffic: an end of the model is on no pipeline rank");
  }
  for (const ChainTraffic& link : traffic.chain) {
    require(link.from >= 0 && link.from < layout.pipeline && link.to >= 0 && link.to < layout.pipeline && link.from != link.to,
            "Traffic: a message from or to no other pipeline rank");
    require(amount(link.bytes) && amount(link.messages), "Traffic: an amount is negative or not finite");
  }
}

CostModel::CostModel(Rings& rings, const Traffic& traffic)
    : rings_(rings), traffic_(traffic), load_bytes_(fabric().channels().size(), 0), load_count_(fabric().channels().size(), 0) {
  check_traffic(traffic_);
  const parallel::Layout& layout = traffic_.layout;
  for (int p = 0; p < layout.pipeline; ++p) {
    if (layout.tensor > 1 && !traffic_.tensor.empty() && sends(traffic_.tensor[at(p)])) {
      for (int d = 0; d < layout.data; ++d) {
        RingGroup group{{}, traffic_.tensor[at(p)]};
        for (int t = 0; t < layout.tensor; ++t) group.ranks.push_back(layout.rank({p, d, t}));
        tensor_.push_back(std::move(group));
      }
    }
    if (layout.data > 1 && !traffic_.data.empty() && sends(traffic_.data[at(p)])) {
      for (int t = 0; t < layout.tensor; ++t) {
        RingGroup group{{}, traffic_.data[at(p)]};
        for (int d = 0; d < layout.data; ++d) group.ranks.push_back(layout.rank({p, d, t}));
        data_.push_back(std::move(group));
      }
    }
  }
  if (traffic_.ends.first != traffic_.ends.last && sends(traffic_.tied)) {
    for (int d = 0; d < layout.data; ++d) {
      for (int t = 0; t < layout.tensor; ++t)
        tied_.push_back({{layout.rank({traffic_.ends.first, d, t}), layout.rank({traffic_.ends.last, d, t})}, traffic_.tied});
    }
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
  // First by all that rings may cross, so that only where rings meet it has to be found out which of them must.
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
  for (int d = 0; d < layout.data && cost.seconds + fill <= enough; ++d) {
    for (int t = 0; t < layout.tensor; ++t) {
      double filled = 0;
      for (const ChainTraffic& link : traffic_.chain) {
        if (link.bytes <= 0 && link.messages <= 0) continue;
        const int from = gpu_of_rank[at(layout.rank({link.from, d, t}))], to = gpu_of_rank[at(layout.rank({link.to, d, t}))];
        const topology::Way& way = fabric().way(from, to);
        cost.seconds = std::max(cost.seconds, way_seconds(way, link.bytes));
        filled += way_seconds(way, link.bytes / std::max(1.0, link.messages)) + way.latency_us * 1e-6;
        for (int channel : way.channels) load(channel, link.bytes);
        if (cost.narrowest.from < 0 || way.gb_per_s < cost.narrowest.gb_per_s)
          cost.narrowest = {from, to, way.gb_per_s, way.link};
      }
      fill = std::max(fill, filled);
    }
  }
  take_loads(cost);
  cost.seconds += fill;
  return cost;
}

double CostModel::seconds(const std::vector<int>& gpu_of_rank) { return seconds(gpu_of_rank, infinite); }

double CostModel::seconds(const std::vector<int>& gpu_of_rank, double enough) {
  check(gpu_of_rank);
  double fill = 0;
  double sum = of_rings(tensor_, gpu_of_rank, false, enough).seconds;
  if (sum <= enough) sum += of_pipeline(gpu_of_rank, fill, enough - sum).seconds;
  if (sum <= enough) sum += of_rings(data_, gpu_of_rank, false, enough - sum).seconds;
  if (sum <= enough) sum += of_rings(tied_, gpu_of_rank, false, enough - sum).seconds;
  return sum;
}

PlacementCost CostModel::cost(const std::vector<int>& gpu_of_rank) {
  check(gpu_of_rank);
  PlacementCost cost;
  cost.tensor = of_rings(tensor_, gpu_of_rank, true, infinite);
  cost.pipeline = of_pipeline(gpu_of_rank, cost.pipeline_fill_seconds, infinite);
  cost.data = of_rings(data_, gpu_of_rank, true, infinite);
  cost.tied = of_rings(tied_, gpu_of_rank, true, infinite);
  cost.seconds = cost.tensor.seconds + cost.pipeline.seconds + cost.data.seconds + cost.tied.seconds;
  return cost;
}

PlacementCost cost_of(topology::Fabric& fabric, const Traffic& traffic, const std::vector<int>& gpu_of_rank) {
  Rings rings(fabric);
  return CostModel(rings, traffic).cost(gpu_of_rank);
}

}  // namespace plait::plan
