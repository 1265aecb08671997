// The simulator's model in its simplest form: small time steps, with everything looked at again in each.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "core/index.h"
#include "parallel/ledger.h"
#include "parallel/program/program_set.h"
#include "plan/simulation/ring_order.h"
#include "plan/simulation/work.h"

namespace plait::plan {

// Shares no code with the simulator except the order of rings. A step is cut short when something ends, so that ends are exact.
class FluidOracle {
 public:
  struct Run {
    double came = -1, begin = -1, moved = -1, end = -1;
  };

  FluidOracle(const parallel::ProgramSet& set, const WorkOf& work_of, const topology::Network& network,
              const std::vector<int>& gpus, int steps)
      : set_(set), work_of_(work_of), network_(network), gpus_(gpus), steps_(steps) {
    for (int rank = 0; rank < set.layout.ranks(); ++rank) {
      runs_.emplace_back(set.program(rank).instructions.size() * at(steps));
      for (int stream = 0; stream < static_cast<int>(set.program(rank).streams.size()); ++stream)
        heads_.push_back({rank, stream, 0});
    }
  }

  // Returns when everything was over.
  double run(double most_dt) {
    for (;;) {
      while (begin_what_can()) {
      }
      if (going_.empty()) return now_;
      double dt = most_dt;
      for (const Going& g : going_) dt = std::min(dt, g.left * pace(g));
      for (Going& g : going_) g.left -= dt / pace(g);
      now_ += dt;
      for (std::size_t g = going_.size(); g-- > 0;) {
        if (going_[g].left <= 1e-12 * going_[g].whole || going_[g].left * pace(going_[g]) < 1e-15) phase_over(g);
      }
    }
  }

  const Run& of(int rank, int step, int instruction) const {
    return runs_[at(rank)][set_.program(rank).instructions.size() * at(step) + at(instruction)];
  }

 private:
  struct Head {
    int rank = 0, stream = 0, done = 0;  // over all steps
  };
  struct Party {
    std::size_t head = 0;
    int instruction = 0, step = 0;
  };
  struct Going {
    std::vector<Party> parties;
    Work work;
    int phase = 0;  // fixed, bytes
    double left = 0, whole = 0;
    bool compute = false, communication = false;
    int rings = 1;
    std::vector<std::pair<int, int>> hops;  // GPUs, of all rings
  };

  std::vector<int> list(const Head& head) const {
    std::vector<int> list;
    const parallel::Program& program = set_.program(head.rank);
    for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
      if (program.at(n).stream == head.stream) list.push_back(n);
    }
    return list;
  }

  // The party for the head's next instruction, if its waits are over.
  std::optional<Party> ready(std::size_t h) {
    const Head& head = heads_[h];
    const std::vector<int> order = list(head);
    if (order.empty() || head.done == static_cast<int>(order.size()) * steps_) return std::nullopt;
    const Party party{h, order[at(head.done) % order.size()], head.done / static_cast<int>(order.size())};
    for (const int w : set_.program(head.rank).at(party.instruction).waits) {
      const int step = w < party.instruction ? party.step : party.step - 1;
      if (step >= 0 && of(head.rank, step, w).end < 0) return std::nullopt;
    }
    Run& run = runs_[at(head.rank)][set_.program(head.rank).instructions.size() * at(party.step) + at(party.instruction)];
    if (run.begin >= 0) return std::nullopt;  // it is running
    if (run.came < 0) run.came = now_;
    return party;
  }

  bool begin_what_can() {
    bool begun = false;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      const auto mine = ready(h);
      if (!mine) continue;
      const parallel::Program& program = set_.program(heads_[h].rank);
      const parallel::Instruction& i = program.at(mine->instruction);
      if (is_receive(i.kind)) continue;  // its sender begins it
      Going g{.parties = {*mine}, .work = work_of_(heads_[h].rank, mine->instruction), .hops = {}};
      const auto group = parallel::collective_group(i);
      const bool on_compute = program.stream_of(i).role == parallel::StreamRole::compute;
      g.compute = on_compute && !parallel::communication_kind(i);
      bool all = true;
      if (is_send(i.kind)) {
        const int peer = set_.layout.moved(heads_[h].rank, Axis::pipeline, program.stream_of(i).peer);
        all = add_party(g, peer, [&](const parallel::Program& p, const parallel::Instruction& other) {
          return is_receive(other.kind) && p.stream_of(other).peer == set_.layout.coordinate(heads_[h].rank, Axis::pipeline);
        });
        g.hops = {{gpus_[at(heads_[h].rank)], gpus_[at(peer)]}};
        g.communication = true;
      } else if (group && set_.members(group->group, heads_[h].rank).size() > 1) {
        const std::vector<int> members = set_.members(group->group, heads_[h].rank);
        if (members.front() != heads_[h].rank) continue;  // the first begins it
        std::vector<int> gpus;
        for (const int member : members) gpus.push_back(gpus_[at(member)]);
        for (std::size_t m = 1; m < members.size(); ++m) {
          const bool here = add_party(g, members[m], [&](const parallel::Program&, const parallel::Instruction& other) {
            return parallel::collective_group(other) == group;
          });
          all = here && all;
          if (here) slower(g.work, work_of_(members[m], g.parties.back().instruction));
        }
        RingOrders rings(network_);
        const CollectiveHops hops = rings.hops(gpus);
        g.rings = hops.rings;
        for (const RingHop& hop : hops.hops) {
          for (int ring = 0; ring < hop.rings; ++ring) g.hops.emplace_back(gpus[at(hop.from)], gpus[at(hop.to)]);
        }
        g.communication = !g.compute;
      } else {
        g.work.bytes = 0;
      }
      if (!all) continue;
      for (const Party& p : g.parties) run_of(p).begin = now_;
      g.left = g.whole = g.work.seconds;
      going_.push_back(g);
      if (g.left <= 0) phase_over(going_.size() - 1);
      begun = true;
    }
    return begun;
  }

  template <typename Fits>
  bool add_party(Going& g, int rank, const Fits& fits) {
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      if (heads_[h].rank != rank) continue;
      const auto party = ready(h);
      if (!party || !fits(set_.program(rank), set_.program(rank).at(party->instruction))) continue;
      g.parties.push_back(*party);
      return true;
    }
    return false;
  }

  static void slower(Work& a, const Work& b) {
    a.seconds = std::max(a.seconds, b.seconds), a.bytes = std::max(a.bytes, b.bytes);
    a.compute_slowdown = std::max(a.compute_slowdown, b.compute_slowdown);
    a.slowed_by_compute = std::max(a.slowed_by_compute, b.slowed_by_compute);
    if (b.most_gb_per_s > 0)
      a.most_gb_per_s = a.most_gb_per_s > 0 ? std::min(a.most_gb_per_s, b.most_gb_per_s) : b.most_gb_per_s;
  }

  Run& run_of(const Party& p) {
    const int rank = heads_[p.head].rank;
    return runs_[at(rank)][set_.program(rank).instructions.size() * at(p.step) + at(p.instruction)];
  }

  // Seconds per second of work, or per byte.
  double pace(const Going& g) const {
    if (g.phase == 1) {
      double gb_per_s = g.work.most_gb_per_s > 0 ? g.work.most_gb_per_s / g.rings : std::numeric_limits<double>::infinity();
      for (const auto& [from, to] : g.hops) {
        const topology::Way way = network_.way(from, to);
        const auto same = std::count(g.hops.begin(), g.hops.end(), std::pair{from, to});
        gb_per_s = std::min(gb_per_s, way.gb_per_s / static_cast<double>(from == to ? 1 : same));
        for (const int channel : way.channels)
          gb_per_s = std::min(gb_per_s, network_.channels[at(channel)].gb_per_s / load(channel));
      }
      return 1e-9 / gb_per_s;
    }
    double slowdown = 0;
    for (const Party& p : g.parties) {
      double here = 0;
      for (const Going& other : going_) {
        for (const Party& q : other.parties) {
          if (other.communication && heads_[q.head].rank == heads_[p.head].rank) here += other.work.compute_slowdown;
        }
      }
      slowdown = std::max(slowdown, here);
    }
    if (g.compute) return 1 + slowdown;
    const auto computes = [&](const Party& p) {
      return std::any_of(going_.begin(), going_.end(), [&](const Going& other) {
        const auto same = [&](const Party& q) { return heads_[q.head].rank == heads_[p.head].rank; };
        return other.compute && std::any_of(other.parties.begin(), other.parties.end(), same);
      });
    };
    const bool beside = g.communication && std::any_of(g.parties.begin(), g.parties.end(), computes);
    return beside ? 1 + g.work.slowed_by_compute : 1;
  }

  int load(int channel) const {
    int load = 0;
    for (const Going& g : going_) {
      if (g.phase != 1) continue;
      for (const auto& [from, to] : g.hops) {
        const topology::Way way = network_.way(from, to);
        load += static_cast<int>(std::count(way.channels.begin(), way.channels.end(), channel));
      }
    }
    return load;
  }

  void phase_over(std::size_t index) {
    Going& g = going_[index];
    if (g.phase == 0) {
      for (const Party& p : g.parties) run_of(p).moved = now_;
    }
    if (++g.phase < 2) {
      g.left = g.whole = g.work.bytes / g.rings;
      if (g.left > 0) return;
    }
    for (const Party& p : g.parties) {
      run_of(p).end = now_;
      ++heads_[p.head].done;
    }
    going_.erase(going_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  const parallel::ProgramSet& set_;
  const WorkOf& work_of_;
  const topology::Network& network_;
  const std::vector<int>& gpus_;
  int steps_;
  double now_ = 0;
  std::vector<Head> heads_;
  std::vector<std::vector<Run>> runs_;  // [rank][step × instructions + index]
  std::vector<Going> going_;
};

}  // namespace plait::plan
