#include "plan/placement/rings.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "core/error.h"
#include "core/index.h"
#include "core/units.h"

namespace plait::plan {
namespace {

using Members = std::uint16_t;  // as bits
// The members that each member may send to.
using Allowed = std::array<Members, exact_ring_members>;

constexpr Members bit(int member) { return static_cast<Members>(1U << member); }

// Finds a cyclic order of `count` members in which every hop is allowed. ends_[S] holds the members at which a path can end
// that starts at member 0 and visits exactly S, a set of the others.
class CycleSearch {
 public:
  CycleSearch(const Allowed& allowed, int count) : count_(count) {
    for (int from = 0; from < count; ++from) {
      for (int to = 0; to < count; ++to) {
        if (allowed[at(from)] & bit(to)) senders_[at(to)] |= bit(from);
      }
    }
    for (int member = 0; member < count; ++member) {
      const Members others = static_cast<Members>((bit(count) - 1) & ~bit(member));
      if (!(allowed[at(member)] & others) || !(senders_[at(member)] & others)) return;
    }
    const unsigned sets = 1U << (count - 1);
    ends_[0] = 0;
    for (unsigned set = 1; set < sets; ++set) {
      Members ends = 0;
      for (int last = 1; last < count; ++last) {
        const unsigned last_bit = 1U << (last - 1);
        if (!(set & last_bit)) continue;
        const unsigned before = set ^ last_bit;
        const bool reached = before == 0 ? senders_[at(last)] & 1 : senders_[at(last)] & ends_[before];
        if (reached) ends |= bit(last);
      }
      ends_[set] = ends;
    }
    found_ = ends_[sets - 1] & senders_[0];
  }

  bool found() const { return found_; }

  std::vector<int> order() const {
    std::vector<int> members;
    unsigned set = (1U << (count_ - 1)) - 1;
    for (Members next = senders_[0]; set != 0;) {
      int last = 1;
      while (!(ends_[set] & next & bit(last))) ++last;
      members.push_back(last);
      next = senders_[at(last)];
      set ^= 1U << (last - 1);
    }
    members.push_back(0);
    std::reverse(members.begin(), members.end());
    return members;
  }

 private:
  int count_;
  bool found_ = false;
  Allowed senders_ = {};
  std::array<Members, std::size_t{1} << (exact_ring_members - 1)> ends_;
};

template <class May>
Allowed allowed_where(int count, const May& may) {
  Allowed allowed = {};
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from != to && may(from, to)) allowed[at(from)] |= bit(to);
    }
  }
  return allowed;
}

bool crosses(const topology::Way& way, int channel) {
  return std::find(way.channels.begin(), way.channels.end(), channel) != way.channels.end();
}

}  // namespace

std::size_t Rings::MembersHash::operator()(const std::vector<int>& members) const {
  std::uint64_t hash = members.size();
  for (int member : members) {
    hash = (hash ^ static_cast<std::uint64_t>(member)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return static_cast<std::size_t>(hash);
}

Rings::Rings(topology::Fabric& fabric) : fabric_(fabric), network_(topology::network_of(fabric)) {
  if (fabric.gpus() <= 16) by_mask_.resize(std::size_t{1} << fabric.gpus(), nullptr);
}

Ring& Rings::of_mask(std::uint32_t mask) {
  if (Ring* known = by_mask_.at(mask)) return *known;
  std::vector<int> members;
  for (int gpu = 0; gpu < fabric_.gpus(); ++gpu) {
    if (mask >> gpu & 1U) members.push_back(gpu);
  }
  Ring& ring = rings_[members];
  ring.members = std::move(members);
  find(ring);
  return *(by_mask_[mask] = &ring);
}

Ring& Rings::of(std::vector<int>& members) {
  if (!by_mask_.empty()) {
    std::uint32_t mask = 0;
    for (int member : members) mask |= 1U << member;
    Ring& ring = of_mask(mask);
    std::copy(ring.members.begin(), ring.members.end(), members.begin());
    return ring;
  }
  std::sort(members.begin(), members.end());
  const auto [found, added] = rings_.try_emplace(members);
  Ring& ring = found->second;  // stays valid, though finding it may add the rings of its hosts
  if (added) {
    ring.members = members;
    find(ring);
  }
  return ring;
}

void Rings::find(Ring& ring) {
  const std::vector<int>& members = ring.members;
  if (members.size() < 2) {
    ring.choices = {{infinite, 0}};
    return;
  }
  ring.across = topology::host_rings(network_, members);
  if (ring.across.rings > 1) return find_across(ring);
  const bool chained = members.size() > at(exact_ring_members);
  RingHops hops{infinite, 0};
  double least_latency = infinite, widest = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t step = 1; step < (chained ? 2 : members.size()); ++step) {
      const topology::Way& way = fabric_.way(members[i], members[(i + step) % members.size()]);
      hops.gb_per_s = std::min(hops.gb_per_s, way.gb_per_s);
      hops.latency_us = std::max(hops.latency_us, way.latency_us);
      widest = std::max(widest, way.gb_per_s);
      least_latency = std::min(least_latency, way.latency_us);
      ring.channels.insert(ring.channels.end(), way.channels.begin(), way.channels.end());
    }
  }
  std::sort(ring.channels.begin(), ring.channels.end());
  ring.channels.erase(std::unique(ring.channels.begin(), ring.channels.end()), ring.channels.end());
  // Two members, and large groups, have one order. In effect, so have members that are all equally far from each other.
  const bool one_order = chained || members.size() == 2;
  ring.crossed.assign(ring.channels.size(), one_order ? 1 : -1);
  if (one_order || (hops.gb_per_s == widest && hops.latency_us == least_latency)) {
    if (hops.gb_per_s > 0) ring.choices = {hops};
    return;
  }
  find_exactly(ring);
}

void Rings::find_exactly(Ring& ring) {
  const int count = static_cast<int>(ring.members.size());
  std::array<std::array<RingHops, exact_ring_members>, exact_ring_members> ways;
  std::vector<double> widths, latencies;
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      const topology::Way& way = fabric_.way(ring.members[at(from)], ring.members[at(to)]);
      ways[at(from)][at(to)] = {way.gb_per_s, way.latency_us};
      if (way.gb_per_s > 0) widths.push_back(way.gb_per_s), latencies.push_back(way.latency_us);
    }
  }
  const auto sort_unique = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  };
  sort_unique(widths);
  sort_unique(latencies);
  const auto possible = [&](double width, double latency) {
    const auto allowed = allowed_where(count, [&](int from, int to) {
      return ways[at(from)][at(to)].gb_per_s >= width && ways[at(from)][at(to)].latency_us <= latency;
    });
    return CycleSearch(allowed, count).found();
  };
  std::size_t slowest = latencies.size();  // of the orders found so far
  for (auto width = widths.rbegin(); width != widths.rend() && slowest > 0; ++width) {
    if (!possible(*width, latencies[slowest - 1])) continue;
    std::size_t low = 0, high = slowest - 1;  // latencies[low..high] contains the least possible latency
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (possible(*width, latencies[middle]))
        high = middle;
      else
        low = middle + 1;
    }
    ring.choices.push_back({*width, latencies[high]});
    slowest = high;
  }
}

void Rings::find_across(Ring& ring) {
  const double rings = ring.across.rings;
  RingHops between{infinite, 0};
  std::map<int, double> between_shares;
  std::map<int, double> widths;  // of those channels; the measured width of a way across, where that exceeds the nominal one
  for (const std::vector<topology::HostHop>& hops : ring.across.hops) {
    for (const topology::HostHop& hop : hops) {
      const topology::Way& way = fabric_.way(hop.from, hop.to);
      between.gb_per_s = std::min(between.gb_per_s, rings * way.gb_per_s);
      between.latency_us = std::max(between.latency_us, way.latency_us);
      for (const int channel : way.channels) {
        between_shares[channel] += 1 / rings;
        double& width = widths.try_emplace(channel, fabric_.channels()[at(channel)].gb_per_s).first->second;
        width = std::max(width, way.gb_per_s);
      }
    }
  }
  // The share of the bytes that goes from a member to the next within a host.
  const auto carried = [&](const std::vector<int>& host) { return at(ring.across.rings) == host.size() ? 1 - 1 / rings : 1; };
  std::map<int, double> shares = between_shares;
  std::vector<const Ring*> inside;
  std::vector<double> latencies = {between.latency_us};
  for (std::vector<int> host : ring.across.hosts) {
    Ring& within = of(host);
    inside.push_back(&within);
    for (const RingHops& hops : within.choices) latencies.push_back(hops.latency_us);
    for (const Crossed& crossed : this->crossed(within)) {
      double& share = shares[crossed.channel];
      share = std::max(share, std::min(1.0, share + carried(host)));
    }
  }
  for (const auto& [channel, width] : widths) between.gb_per_s = std::min(between.gb_per_s, width / shares[channel]);
  std::sort(latencies.begin(), latencies.end(), std::greater<>());
  for (const double latency : latencies) {
    if (latency < between.latency_us) break;
    RingHops hops{between.gb_per_s, between.latency_us};
    for (const Ring* within : inside) {
      const auto choice = std::find_if(within->choices.begin(), within->choices.end(),
                                       [&](const RingHops& c) { return c.latency_us <= latency; });
      if (choice == within->choices.end()) {
        hops.gb_per_s = 0;
        break;
      }
      hops.gb_per_s = std::min(hops.gb_per_s, choice->gb_per_s / carried(within->members));
      hops.latency_us = std::max(hops.latency_us, choice->latency_us);
    }
    if (hops.gb_per_s <= 0) break;  // lower latencies are impossible too
    if (!ring.choices.empty() && ring.choices.back().gb_per_s <= hops.gb_per_s) ring.choices.pop_back();
    ring.choices.push_back(hops);
  }
  for (const auto& [channel, share] : shares) {
    ring.channels.push_back(channel);
    ring.shares.push_back(share);
  }
  ring.crossed.assign(ring.channels.size(), 1);
}

bool Rings::must_cross(Ring& ring, std::size_t index) {
  std::int8_t& known = ring.crossed[index];
  if (known < 0) {
    const int channel = ring.channels[index], count = static_cast<int>(ring.members.size());
    const auto allowed = allowed_where(count, [&](int from, int to) {
      const topology::Way& way = fabric_.way(ring.members[at(from)], ring.members[at(to)]);
      return way.gb_per_s > 0 && !crosses(way, channel);
    });
    known = CycleSearch(allowed, count).found() ? 0 : 1;
  }
  return known == 1;
}

const std::vector<Crossed>& Rings::crossed(Ring& ring) {
  const auto [found, added] = crossed_.try_emplace(&ring);
  if (added) {
    for (std::size_t i = 0; i < ring.channels.size(); ++i) {
      if (must_cross(ring, i)) found->second.push_back({ring.channels[i], ring.share(i)});
    }
  }
  return found->second;
}

std::vector<int> Rings::order(const Ring& ring, const RingHops& hops) {
  const int count = static_cast<int>(ring.members.size());
  if (count < 3 || count > exact_ring_members) return ring.members;
  const CycleSearch search(allowed_where(count,
                                         [&](int from, int to) {
                                           const topology::Way& way = fabric_.way(ring.members[at(from)], ring.members[at(to)]);
                                           return way.gb_per_s >= hops.gb_per_s && way.latency_us <= hops.latency_us;
                                         }),
                           count);
  require(search.found(), "Rings::order: no ring has these hops");
  std::vector<int> order;
  for (int member : search.order()) order.push_back(ring.members[at(member)]);
  return order;
}

std::vector<topology::HostHop> Rings::hops(const Ring& ring, const RingHops& choice) {
  std::vector<topology::HostHop> hops;
  if (ring.across.rings > 1 && !ring.choices.empty()) {
    for (std::size_t h = 0; h < ring.across.hosts.size(); ++h) {
      std::vector<int> host = ring.across.hosts[h];
      const Ring& inside = of(host);
      const auto widest = std::find_if(inside.choices.begin(), inside.choices.end(),
                                       [&](const RingHops& c) { return c.latency_us <= choice.latency_us; });
      const std::vector<topology::HostHop> within = this->hops(inside, *widest);
      hops.insert(hops.end(), within.begin(), within.end());
      hops.insert(hops.end(), ring.across.hops[h].begin(), ring.across.hops[h].end());
    }
    return hops;
  }
  const std::vector<int> order = ring.choices.empty() ? ring.members : this->order(ring, choice);
  for (std::size_t i = 0; i < order.size(); ++i) hops.push_back({order[i], order[(i + 1) % order.size()]});
  return hops;
}

}  // namespace plait::plan
