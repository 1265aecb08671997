#include "plan/simulation/ring_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "core/index.h"

namespace plait::plan {
namespace {

// A way between two members, with channels numbered as this group meets them.
struct Hop {
  double gb_per_s = 0;
  std::vector<int> channels;
};

}  // namespace

// Searches depth first, in ascending order of members, and leaves branches that cannot beat the best so far.
class RingOrders::Search {
 public:
  Search(const topology::Network& network, const std::vector<int>& gpus) : members_(static_cast<int>(gpus.size())) {
    std::map<int, int> numbers;
    most_ = std::numeric_limits<double>::infinity();
    for (int from = 0; from < members_; ++from) {
      double widest = 0;
      for (int to = 0; to < members_; ++to) {
        Hop hop;
        if (gpus[at(from)] == gpus[at(to)]) {
          hop.gb_per_s = from != to ? std::numeric_limits<double>::infinity() : 0;
        } else {
          const topology::Way& way = network.way(gpus[at(from)], gpus[at(to)]);
          hop.gb_per_s = way.gb_per_s;
          for (const int channel : way.channels) {
            const auto [it, fresh] = numbers.try_emplace(channel, static_cast<int>(widths_.size()));
            if (fresh) widths_.push_back(network.channels[at(channel)].gb_per_s);
            widths_[at(it->second)] = std::max(widths_[at(it->second)], hop.gb_per_s);
            hop.channels.push_back(it->second);
          }
        }
        widest = std::max(widest, hop.gb_per_s);
        hops_.push_back(std::move(hop));
      }
      most_ = std::min(most_, widest);
    }
    loads_.assign(widths_.size(), 0);
  }

  std::vector<double> key() const {
    std::vector<double> key = {static_cast<double>(members_)};
    for (const Hop& hop : hops_) {
      key.push_back(hop.gb_per_s);
      key.push_back(static_cast<double>(hop.channels.size()));
      key.insert(key.end(), hop.channels.begin(), hop.channels.end());
    }
    key.insert(key.end(), widths_.begin(), widths_.end());
    return key;
  }

  std::vector<int> run() {
    path_ = {0};
    visited_.assign(at(members_), false);
    visited_[0] = true;
    extend();
    return best_;
  }

 private:
  const Hop& hop(int from, int to) const { return hops_[at(from * members_ + to)]; }

  void load(const Hop& hop, int by) {
    for (const int channel : hop.channels) loads_[at(channel)] += by;
  }

  // The rate of the slowest hop so far. Further hops never raise it.
  double rate(bool closed) const {
    double rate = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i + (closed ? 0 : 1) < path_.size(); ++i) {
      const Hop& h = hop(path_[i], path_[(i + 1) % path_.size()]);
      rate = std::min(rate, h.gb_per_s);
      for (const int channel : h.channels) rate = std::min(rate, widths_[at(channel)] / loads_[at(channel)]);
    }
    return rate;
  }

  void extend() {
    if (path_.size() == at(members_)) {
      const Hop& last = hop(path_.back(), 0);
      load(last, 1);
      if (const double whole = rate(true); whole > best_rate_) best_rate_ = whole, best_ = path_;
      load(last, -1);
      return;
    }
    for (int next = 1; next < members_ && best_rate_ < most_; ++next) {
      if (visited_[at(next)]) continue;
      const Hop& h = hop(path_.back(), next);
      load(h, 1);
      path_.push_back(next);
      visited_[at(next)] = true;
      if (rate(false) > best_rate_) extend();
      visited_[at(next)] = false;
      path_.pop_back();
      load(h, -1);
    }
  }

  int members_;
  std::vector<Hop> hops_;       // [from × members + to]
  std::vector<double> widths_;  // by channel
  std::vector<int> loads_;
  double most_ = 0;  // an upper bound: each member sends once
  double best_rate_ = -1;
  std::vector<int> path_, best_;
  std::vector<bool> visited_;
};

std::vector<int> RingOrders::by_host(const std::vector<int>& gpus) const {
  std::vector<int> sorted(gpus.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), [&](int a, int b) {
    const int gpu_a = gpus[at(a)], gpu_b = gpus[at(b)];
    return std::tuple(network_.host_of[at(gpu_a)], gpu_a, a) < std::tuple(network_.host_of[at(gpu_b)], gpu_b, b);
  });
  return sorted;
}

std::vector<int> RingOrders::order(const std::vector<int>& gpus) {
  const std::vector<int> sorted = by_host(gpus);
  if (gpus.size() <= 2 || gpus.size() > most_searched) return sorted;
  std::vector<int> sorted_gpus;
  for (const int i : sorted) sorted_gpus.push_back(gpus[at(i)]);
  Search search(network_, sorted_gpus);
  const auto [it, fresh] = found_.try_emplace(search.key());
  if (fresh) it->second = search.run();
  std::vector<int> order;
  for (const int i : it->second) order.push_back(sorted[at(i)]);
  return order;
}

CollectiveHops RingOrders::hops(const std::vector<int>& gpus) {
  const std::vector<int> sorted = by_host(gpus);
  std::vector<int> distinct;
  for (const int i : sorted) {
    if (distinct.empty() || distinct.back() != gpus[at(i)]) distinct.push_back(gpus[at(i)]);
  }
  const topology::HostRings across = topology::host_rings(network_, distinct);
  CollectiveHops result{.rings = across.rings, .hops = {}};
  const auto add_cycle = [&](const std::vector<int>& cycle) {
    for (std::size_t i = 0; i < cycle.size(); ++i)
      result.hops.push_back({cycle[i], cycle[(i + 1) % cycle.size()], across.rings});
  };
  if (across.rings == 1) {
    add_cycle(order(gpus));
    return result;
  }
  const auto host_of = [&](int member) { return network_.host_of[at(gpus[at(member)])]; };
  std::map<int, int> member_on;  // by GPU, the first
  for (const int i : sorted) member_on.try_emplace(gpus[at(i)], i);
  for (std::size_t h = 0, next = 0; h < across.hosts.size(); ++h) {
    std::vector<int> members, gpus_here;
    for (; next < sorted.size() && host_of(sorted[next]) == network_.host_of[at(across.hosts[h].front())]; ++next) {
      members.push_back(sorted[next]);
      gpus_here.push_back(gpus[at(sorted[next])]);
    }
    std::vector<int> cycle;
    for (const int i : order(gpus_here)) cycle.push_back(members[at(i)]);
    const std::size_t first = result.hops.size();
    add_cycle(cycle);
    for (const topology::HostHop& leaves : across.hops[h]) {
      const int from = member_on.at(leaves.from);
      for (std::size_t i = first; i < first + cycle.size(); ++i) {
        if (result.hops[i].from == from) --result.hops[i].rings;
      }
      result.hops.push_back({from, member_on.at(leaves.to), 1});
    }
  }
  std::erase_if(result.hops, [](const RingHop& hop) { return hop.rings == 0; });
  return result;
}

}  // namespace plait::plan
