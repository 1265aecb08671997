#include "plan/simulation/job.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "parallel/ledger.h"
#include "plan/simulation/ring_order.h"

namespace plait::plan::simulation {

using parallel::GroupStream;
using parallel::Instruction;
using parallel::StreamRole;

namespace {

ProgramTable make_table(const parallel::Program& program, const std::vector<GroupStream>& groups) {
  ProgramTable table{.program = &program, .entries = {}, .streams = {}, .collectives = {}, .last_compute = none};
  table.streams.resize(program.streams.size());
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
    const Instruction& i = program.at(n);
    std::vector<int>& stream = table.streams[at(i.stream)];
    ProgramTable::Role entry{.place = static_cast<int>(stream.size())};
    stream.push_back(n);
    const bool on_compute = program.stream_of(i).role == StreamRole::compute;
    entry.compute = on_compute && !parallel::communication_kind(i);
    if (on_compute) table.last_compute = n;
    if (parallel::is_send(i.kind)) {
      entry.meeting = Meeting::send;
    } else if (parallel::is_receive(i.kind)) {
      entry.meeting = Meeting::receive;
    } else if (const auto group = parallel::collective_group(i)) {
      entry.meeting = Meeting::collective;
      entry.group = static_cast<std::uint8_t>(std::find(groups.begin(), groups.end(), *group) - groups.begin());
      std::vector<int>& collectives = table.collectives[entry.group];
      entry.turn = static_cast<int>(collectives.size());
      collectives.push_back(n);
      require(table.group_stream(entry.group) == i.stream,
              "simulation: the collectives of a group for one purpose are all on one stream");
    }
    table.entries.push_back(entry);
  }
  require(table.last_compute != none, "simulation: a program computes something");
  return table;
}

bool is_sound(const Work& work) {
  for (const double value : {work.seconds, work.bytes, work.most_gb_per_s, work.compute_slowdown, work.slowed_by_compute}) {
    if (!std::isfinite(value) || value < 0) return false;
  }
  return true;
}

class JobBuilder {
 public:
  JobBuilder(const parallel::ProgramSet& set, const WorkOf& work_of, const topology::Network& network,
             const std::vector<int>& gpu_of_rank, const std::vector<int>& same_work)
      : set_(set), network_(network), gpu_of_rank_(gpu_of_rank), rings_(network) {
    job_.layout = set.layout;
    require(std::ssize(gpu_of_rank) == job_.ranks(), "simulation: a GPU for every rank");
    for (const int gpu : gpu_of_rank)
      require(gpu >= 0 && gpu < network.gpus(), "simulation: every rank's GPU is one of the network");
    for (const topology::Channel& channel : network.channels) job_.channel_gb_per_s.push_back(channel.gb_per_s);
    job_.groups = groups_of(set);
    require(job_.groups.size() <= group_kinds, "simulation: more kinds of groups than it has places for");
    for (const parallel::RankProgram& program : set.programs) job_.tables.push_back(make_table(program.program, job_.groups));
    job_.table_of = set.program_of;
    require(same_work.empty() || std::ssize(same_work) == job_.ranks(), "simulation: same_work has a number for every rank");
    take_works(work_of, same_work);
    for (int rank = 0; rank < job_.ranks(); ++rank) add_messages(rank);
    add_meets();
    drop_idle_crossings();
  }

  Job take() { return std::move(job_); }

 private:
  void take_works(const WorkOf& work_of, const std::vector<int>& same_work) {
    std::map<int, std::vector<int>> rows_of;      // by program
    std::map<std::pair<int, int>, int> first_of;  // by program and number in same_work: the first rank
    for (int rank = 0; rank < job_.ranks(); ++rank) {
      if (!same_work.empty()) {
        const auto [same, is_first] = first_of.try_emplace({job_.table_of[at(rank)], same_work[at(rank)]}, rank);
        if (!is_first) {
          job_.work_of.push_back(job_.work_of[at(same->second)]);
          continue;
        }
      }
      const ProgramTable& table = job_.table(rank);
      std::vector<Work> row(table.entries.size());
      for (int n = 0; n < table.instructions(); ++n) {
        if (table.entries[at(n)].meeting == Meeting::receive) continue;
        Work& work = row[at(n)];
        work = work_of(rank, n);
        if (!is_sound(work)) {
          throw InternalError("simulation: the work of " + to_string(table.program->at(n)) + " is negative or not finite");
        }
      }
      // The newest rows are compared first: neighbouring ranks are alike.
      std::vector<int>& rows = rows_of[job_.table_of[at(rank)]];
      const auto it = std::find_if(rows.rbegin(), rows.rend(), [&](int other) { return job_.works[at(other)] == row; });
      job_.work_of.push_back(it != rows.rend() ? *it : static_cast<int>(job_.works.size()));
      if (it != rows.rend()) continue;
      rows.push_back(job_.work_of.back());
      job_.works.push_back(std::move(row));
    }
  }

  bool moves_bytes(int rank, int stream) const {
    const std::vector<int>& list = job_.table(rank).streams[at(stream)];
    return std::any_of(list.begin(), list.end(), [&](int n) { return job_.work(rank, n).bytes > 0; });
  }

  void add_messages(int rank) {
    const parallel::Program& program = *job_.table(rank).program;
    std::vector<int>& flows = job_.message_flow.emplace_back(program.streams.size(), none);
    for (int stream = 0; stream < static_cast<int>(program.streams.size()); ++stream) {
      if (program.streams[at(stream)].role != StreamRole::send) continue;
      job_.peer_stream(rank, stream);
      if (!moves_bytes(rank, stream)) continue;
      CollectiveHops message;
      message.hops.push_back({rank, job_.peer_rank(rank, stream)});
      flows[at(stream)] = add_flow(message, network_.message_way ? network_.message_way : network_.way);
    }
  }

  void add_meets() {
    std::array<int, group_kinds> alone;
    alone.fill(none);
    job_.meet_of.assign(at(job_.ranks()), alone);
    for (std::size_t kind = 0; kind < job_.groups.size(); ++kind) {
      for (int rank = 0; rank < job_.ranks(); ++rank) {
        if (job_.table(rank).collectives[kind].empty() || job_.meet_of[at(rank)][kind] != none) continue;
        Meet meet{.group = kind, .ranks = set_.members(job_.groups[kind].group, rank)};
        if (meet.ranks.size() < 2) continue;
        bool bytes = false;
        for (const int member : meet.ranks) {
          if (job_.table(member).collectives[kind].size() != job_.table(rank).collectives[kind].size()) {
            throw InternalError("simulation: rank " + std::to_string(member) + " runs more or fewer collectives than rank " +
                                std::to_string(rank) + " of its " + to_string(job_.groups[kind]) + " group");
          }
          job_.meet_of[at(member)][kind] = static_cast<int>(job_.meets.size());
          bytes = bytes || moves_bytes_in(member, kind);
        }
        if (bytes) meet.flow = add_flow(hops_of(meet.ranks), network_.way);
        job_.meets.push_back(std::move(meet));
      }
    }
  }

  bool moves_bytes_in(int rank, std::size_t kind) {
    const auto [it, fresh] = moves_.try_emplace({job_.work_of[at(rank)], kind}, false);
    if (!fresh) return it->second;
    const std::vector<int>& collectives = job_.table(rank).collectives[kind];
    it->second = std::any_of(collectives.begin(), collectives.end(), [&](int n) { return job_.work(rank, n).bytes > 0; });
    return it->second;
  }

  // The hops between ranks.
  CollectiveHops hops_of(const std::vector<int>& ranks) {
    std::vector<int> gpus;
    for (const int rank : ranks) gpus.push_back(gpu_of_rank_[at(rank)]);
    CollectiveHops hops = rings_.hops(gpus);
    for (RingHop& hop : hops.hops) hop.from = ranks[at(hop.from)], hop.to = ranks[at(hop.to)];
    return hops;
  }

  int add_flow(const CollectiveHops& hops, const std::function<const topology::Way&(int, int)>& way_of) {
    Flow flow{.rings = hops.rings, .crossings = {}};
    std::vector<int> channels;
    for (const auto& [from, to, rings] : hops.hops) {
      const int a = gpu_of_rank_[at(from)], b = gpu_of_rank_[at(to)];
      if (a == b) continue;  // a transfer within one GPU takes no time
      const topology::Way& way = way_of(a, b);
      if (!(way.gb_per_s > 0)) {
        throw ConfigError(
            {{"placement",
              "rank " + std::to_string(from) + " on GPU " + std::to_string(a) + ", rank " + std::to_string(to) + " on GPU " +
                  std::to_string(b),
              "ranks that exchange data must be on GPUs that the topology connects; take other GPUs, or add the missing "
              "link to the topology file",
              "", 0}});
      }
      flow.most_gb_per_s = std::min(flow.most_gb_per_s, way.gb_per_s / rings);
      for (const int channel : way.channels) {
        double& width = job_.channel_gb_per_s[at(channel)];
        width = std::max(width, way.gb_per_s);
      }
      for (int ring = 0; ring < rings; ++ring) channels.insert(channels.end(), way.channels.begin(), way.channels.end());
    }
    std::sort(channels.begin(), channels.end());
    for (const int channel : channels) {
      if (flow.crossings.empty() || flow.crossings.back().channel != channel) {
        flow.crossings.push_back({channel, 1});
      } else {
        ++flow.crossings.back().times;
      }
    }
    job_.flows.push_back(std::move(flow));
    return static_cast<int>(job_.flows.size()) - 1;
  }

  // Drops crossings of channels that never slow a flow, whatever else moves. A channel that only one flow crosses is dropped
  // too; its width limits that flow instead.
  void drop_idle_crossings() {
    struct Use {
      int flows = 0, times = 0;
      double fastest = 0;
    };
    std::vector<Use> uses(job_.channel_gb_per_s.size());
    const auto width = [&](const Flow::Crossing& c) { return job_.channel_gb_per_s[at(c.channel)]; };
    for (const Flow& flow : job_.flows) {
      for (const Flow::Crossing& c : flow.crossings) ++uses[at(c.channel)].flows, uses[at(c.channel)].times += c.times;
    }
    for (Flow& flow : job_.flows) {
      for (const Flow::Crossing& c : flow.crossings) {
        if (uses[at(c.channel)].flows == 1) flow.most_gb_per_s = std::min(flow.most_gb_per_s, width(c) / c.times);
      }
      for (const Flow::Crossing& c : flow.crossings) {
        double& fastest = uses[at(c.channel)].fastest;
        fastest = std::max(fastest, flow.most_gb_per_s);
      }
    }
    for (Flow& flow : job_.flows) {
      std::erase_if(flow.crossings, [&](const Flow::Crossing& c) {
        const Use& use = uses[at(c.channel)];
        return use.flows == 1 || width(c) / use.times >= use.fastest;
      });
    }
  }

  const parallel::ProgramSet& set_;
  const topology::Network& network_;
  const std::vector<int>& gpu_of_rank_;
  RingOrders rings_;
  std::map<std::pair<int, std::size_t>, bool> moves_;  // by row of work and kind of group
  Job job_;
};

}  // namespace

void take_slower(Work& work, const Work& other) {
  work.seconds = std::max(work.seconds, other.seconds);
  work.bytes = std::max(work.bytes, other.bytes);
  work.compute_slowdown = std::max(work.compute_slowdown, other.compute_slowdown);
  work.slowed_by_compute = std::max(work.slowed_by_compute, other.slowed_by_compute);
  const bool limited = other.most_gb_per_s > 0 && (work.most_gb_per_s == 0 || other.most_gb_per_s < work.most_gb_per_s);
  if (limited) work.most_gb_per_s = other.most_gb_per_s;
}

void share_among_rings(Work& work, int rings) {
  work.bytes /= rings;
  work.most_gb_per_s /= rings;
}

int Job::peer_rank(int rank, int stream) const {
  return layout.moved(rank, stage_axis, table(rank).program->streams[at(stream)].peer);
}

int Job::peer_stream(int rank, int stream) const {
  const parallel::StreamSpec& mine = table(rank).program->streams[at(stream)];
  const parallel::StreamSpec theirs{mine.role == StreamRole::send ? StreamRole::receive : StreamRole::send,
                                    layout.coordinate(rank, stage_axis)};
  const std::vector<parallel::StreamSpec>& specs = table(peer_rank(rank, stream)).program->streams;
  const auto it = std::find(specs.begin(), specs.end(), theirs);
  if (it == specs.end()) {
    throw InternalError("simulation: rank " + std::to_string(rank) + " has messages with rank " +
                        std::to_string(peer_rank(rank, stream)) + ", which has none with it");
  }
  return static_cast<int>(it - specs.begin());
}

Job make_job(const parallel::ProgramSet& set, const WorkOf& work_of, const topology::Network& network,
             const std::vector<int>& gpu_of_rank, const std::vector<int>& same_work) {
  return JobBuilder(set, work_of, network, gpu_of_rank, same_work).take();
}

}  // namespace plait::plan::simulation
