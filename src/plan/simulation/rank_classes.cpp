#include "plan/simulation/rank_classes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <unordered_map>

namespace plait::plan::simulation {
namespace {

using Signature = std::vector<std::int64_t>;

struct Hash {
  std::size_t operator()(const Signature& signature) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (const std::int64_t value : signature) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0xff51afd7ed558ccd;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

// Numbers signatures in their order of appearance.
class Numbering {
 public:
  int of(const Signature& signature) {
    return numbers_.try_emplace(signature, static_cast<int>(numbers_.size())).first->second;
  }
  int size() const { return static_cast<int>(numbers_.size()); }

 private:
  std::unordered_map<Signature, int, Hash> numbers_;
};

std::int64_t bits(double value) {
  std::int64_t bits = 0;
  static_assert(sizeof bits == sizeof value);
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

void sort_and_append(Signature& signature, Signature& part, bool unique) {
  std::sort(part.begin(), part.end());
  if (unique) part.erase(std::unique(part.begin(), part.end()), part.end());
  signature.push_back(static_cast<std::int64_t>(part.size()));
  signature.insert(signature.end(), part.begin(), part.end());
}

class Refinement {
 public:
  explicit Refinement(const Job& job) : job_(job), crossed_by_(job.channel_gb_per_s.size()) {
    for (int f = 0; f < static_cast<int>(job.flows.size()); ++f) {
      for (const Flow::Crossing& c : job.flows[at(f)].crossings) crossed_by_[at(c.channel)].push_back({f, c.times});
    }
    owner_.resize(job.flows.size());
    for (int rank = 0; rank < job.ranks(); ++rank) {
      const std::vector<int>& flows = job.message_flow[at(rank)];
      for (int stream = 0; stream < static_cast<int>(flows.size()); ++stream) {
        if (flows[at(stream)] != none) owner_[at(flows[at(stream)])] = {rank, stream};
      }
    }
    for (int meet = 0; meet < static_cast<int>(job.meets.size()); ++meet) {
      if (job.meets[at(meet)].flow != none) owner_[at(job.meets[at(meet)].flow)] = {meet, none};
    }
  }

  Classes run() {
    begin();
    for (int before = 0; before < classes_.ranks + classes_.meets + classes_.channels;) {
      before = classes_.ranks + classes_.meets + classes_.channels;
      round();
    }
    return std::move(classes_);
  }

 private:
  struct Owner {
    int index = 0;  // a rank; a meet if stream is none
    int stream = none;
  };
  struct CrossedBy {
    int flow = 0, times = 1;
  };

  void begin() {
    Numbering ranks, meets, channels;
    for (int rank = 0; rank < job_.ranks(); ++rank) {
      classes_.of_rank.push_back(
          ranks.of({job_.layout.coordinate(rank, stage_axis), job_.table_of[at(rank)], job_.work_of[at(rank)]}));
    }
    for (const Meet& meet : job_.meets) classes_.of_meet.push_back(meets.of({static_cast<int>(meet.group)}));
    for (const double gb_per_s : job_.channel_gb_per_s) classes_.of_channel.push_back(channels.of({bits(gb_per_s)}));
    classes_.ranks = ranks.size(), classes_.meets = meets.size(), classes_.channels = channels.size();
  }

  // Every signature begins with the current class, so classes are only ever split.
  void round() {
    Numbering ranks, meets, channels;
    std::vector<int> of_rank, of_meet, of_channel;
    Signature signature, part;
    for (int rank = 0; rank < job_.ranks(); ++rank) {
      signature = {classes_.of_rank[at(rank)]};
      const std::vector<parallel::StreamSpec>& streams = job_.table(rank).program->streams;
      for (int stream = 0; stream < static_cast<int>(streams.size()); ++stream) {
        if (streams[at(stream)].peer < 0) continue;
        signature.push_back(classes_.of_rank[at(job_.peer_rank(rank, stream))]);
        append_flow(signature, part, job_.message_flow[at(rank)][at(stream)]);
      }
      for (const int meet : job_.meet_of[at(rank)]) signature.push_back(meet == none ? none : classes_.of_meet[at(meet)]);
      of_rank.push_back(ranks.of(signature));
    }
    for (std::size_t m = 0; m < job_.meets.size(); ++m) {
      signature = {classes_.of_meet[m]};
      part.clear();
      for (const int rank : job_.meets[m].ranks) part.push_back(classes_.of_rank[at(rank)]);
      sort_and_append(signature, part, true);
      append_flow(signature, part, job_.meets[m].flow);
      of_meet.push_back(meets.of(signature));
    }
    for (std::size_t c = 0; c < crossed_by_.size(); ++c) {
      signature = {classes_.of_channel[c]};
      part.clear();
      for (const CrossedBy& crossed : crossed_by_[c]) {
        const Owner& owner = owner_[at(crossed.flow)];
        const std::int64_t flow_class = owner.stream == none
                                            ? -1 - std::int64_t{classes_.of_meet[at(owner.index)]}
                                            : (std::int64_t{classes_.of_rank[at(owner.index)]} << 32) + owner.stream;
        part.insert(part.end(), at(crossed.times), flow_class);
      }
      sort_and_append(signature, part, false);
      of_channel.push_back(channels.of(signature));
    }
    classes_ = {std::move(of_rank), std::move(of_meet), std::move(of_channel), ranks.size(), meets.size(), channels.size()};
  }

  // Appends the classes of the flow's channels. The channels' own signatures count how often it crosses each.
  void append_flow(Signature& signature, Signature& part, int flow) const {
    if (flow == none) return signature.push_back(none);
    signature.push_back(job_.flows[at(flow)].rings);
    signature.push_back(bits(job_.flows[at(flow)].most_gb_per_s));
    part.clear();
    for (const Flow::Crossing& c : job_.flows[at(flow)].crossings) part.push_back(classes_.of_channel[at(c.channel)]);
    sort_and_append(signature, part, true);
  }

  const Job& job_;
  std::vector<std::vector<CrossedBy>> crossed_by_;  // by channel
  std::vector<Owner> owner_;                        // by flow
  Classes classes_;
};

}  // namespace

Classes coarsest_classes(const Job& job) { return Refinement(job).run(); }

Classes single_classes(const Job& job) {
  Classes classes;
  for (auto [list, size] : {std::pair{&classes.of_rank, at(job.ranks())}, std::pair{&classes.of_meet, job.meets.size()},
                            std::pair{&classes.of_channel, job.channel_gb_per_s.size()}}) {
    list->resize(size);
    std::iota(list->begin(), list->end(), 0);
  }
  classes.ranks = job.ranks();
  classes.meets = static_cast<int>(job.meets.size());
  classes.channels = static_cast<int>(job.channel_gb_per_s.size());
  return classes;
}

}  // namespace plait::plan::simulation
