#include "parallel/schedule/pass_messages.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/schedule/braids.h"
#include "parallel/schedule/schedule_timeline.h"
#include "parallel/schedule/slots.h"

namespace plait::parallel {
namespace {

// Slots of the messages that a chunk receives, as the generator hands them out (parallel/program/pipeline_program.cpp).
struct Received {
  SlotTable slots;
  std::map<int, std::size_t> free_after;  // by slot: passes of the rank, once it has been used
};
struct ChunkOfRank {
  Received activations, gradients;
  std::set<int> held, finished;  // micro-batches
};

// Plays a step: each rank's passes in order, each pair's messages in order, everything as soon as it may happen.
class Play {
 public:
  Play(const Schedule& schedule, bool overlap) : passes_(schedule.passes), overlap_(overlap), ranks_(schedule.passes.size()) {
    for (int rank = 0; rank < schedule.ranks(); ++rank) add_messages(schedule, rank);
    for (int rank = 0; rank < schedule.ranks(); ++rank) place_receives(rank, schedule.stages);
  }

  // Whether every rank gets through.
  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        for (; can_compute(rank); moved = true) ranks_[rank].done = turn_at(passes_[rank], ranks_[rank].done).end();
      }
      for (Channel& channel : channels_) {
        for (; can_receive(channel); moved = true) ++channel.received;
      }
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.done == r.passes.size(); });
  }

 private:
  struct Place {
    int channel = -1;  // none
    std::size_t index = 0;
  };
  struct Message {
    PassMessage what;
    std::size_t made_by = 0;  // pass of the sender
    std::size_t after = 0;    // passes of the receiver before its place is free
  };
  struct Channel {
    std::size_t sender = 0, receiver = 0;
    std::vector<Message> messages;
    std::size_t received = 0;
  };
  struct PassOfRank {
    Place needs, sends, earlier;  // earlier: the gradient whose place the pass writes its own to
  };
  struct Rank {
    std::vector<PassOfRank> passes;
    std::size_t done = 0;
  };
  using Key = std::tuple<int, bool, int, int>;  // receiver, gradient, chunk, micro-batch

  void add_messages(const Schedule& schedule, int sender) {
    const auto s = static_cast<std::size_t>(sender);
    std::map<int, std::vector<Place>> gradients;  // by chunk
    std::map<int, int> channel_to;
    for (std::size_t n = 0; n < passes_[s].size(); ++n) {
      const Pass& pass = passes_[s][n];
      PassOfRank& of_rank = ranks_[s].passes.emplace_back();
      const auto message = message_of(schedule, sender, pass);
      if (!message) continue;
      const auto [it, fresh] = channel_to.try_emplace(message->receiver, static_cast<int>(channels_.size()));
      if (fresh) channels_.push_back({s, static_cast<std::size_t>(message->receiver), {}, 0});
      Channel& channel = channels_[static_cast<std::size_t>(it->second)];
      of_rank.sends = {it->second, channel.messages.size()};
      channel.messages.push_back({*message, n, 0});
      places_[{message->receiver, message->gradient, message->chunk, message->micro_batch}] = of_rank.sends;
      if (!message->gradient) continue;
      std::vector<Place>& sent = gradients[pass.chunk];
      if (sent.size() >= gradient_out_slots) of_rank.earlier = sent[sent.size() - gradient_out_slots];
      sent.push_back(of_rank.sends);
    }
  }

  // As the generator does: one turn ahead, or with nothing at the same time just before the turn.
  void place_receives(int receiver, const StageMap& map) {
    const std::vector<Pass>& passes = passes_[static_cast<std::size_t>(receiver)];
    std::vector<ChunkOfRank> chunks(static_cast<std::size_t>(map.chunks(receiver)));
    std::map<int, std::size_t> placed;  // by channel
    const auto place = [&](const Turn& turn) {
      for (std::size_t n = turn.first; n < turn.end(); ++n) place_messages(receiver, n, chunks, placed);
    };
    for (std::size_t n = 0; n < passes.size();) {
      const Turn turn = turn_at(passes, n);
      if (n == 0 || !overlap_) place(turn);
      if (overlap_ && turn.end() < passes.size()) place(turn_at(passes, turn.end()));
      for (; n < turn.end(); ++n) {
        if (passes[n].kind == PassKind::forward)
          chunks[static_cast<std::size_t>(passes[n].chunk)].held.insert(passes[n].micro_batch);
      }
      for (n = turn.first; n < turn.end(); ++n) {
        if (passes[n].kind != PassKind::backward && passes[n].kind != PassKind::backward_weight) continue;
        chunks[static_cast<std::size_t>(passes[n].chunk)].finished.insert(passes[n].micro_batch);
        give_back(receiver, map, passes[n].chunk, passes[n].micro_batch, turn.end(), chunks);
      }
    }
  }

  // Those up to the one that a pass needs, if it needs one that is not there yet.
  void place_messages(int receiver, std::size_t n, std::vector<ChunkOfRank>& chunks, std::map<int, std::size_t>& placed) {
    const Pass& pass = passes_[static_cast<std::size_t>(receiver)][n];
    if (pass.kind == PassKind::backward_weight) return;
    const auto found = places_.find({receiver, pass.kind != PassKind::forward, pass.chunk, pass.micro_batch});
    if (found == places_.end()) return;
    ranks_[static_cast<std::size_t>(receiver)].passes[n].needs = found->second;
    Channel& channel = channels_[static_cast<std::size_t>(found->second.channel)];
    for (std::size_t& next = placed[found->second.channel]; next <= found->second.index; ++next) {
      Message& message = channel.messages[next];
      ChunkOfRank& chunk = chunks[static_cast<std::size_t>(message.what.chunk)];
      Received& received = message.what.gradient ? chunk.gradients : chunk.activations;
      message.after = received.free_after[received.slots.take(message.what.micro_batch)];
    }
  }

  static void give_back(int rank, const StageMap& map, int index, int micro_batch, std::size_t passes,
                        std::vector<ChunkOfRank>& chunks) {
    ChunkOfRank& chunk = chunks[static_cast<std::size_t>(index)];
    const int stage = map.stage(rank, index);
    const auto is_here = [&](int s) { return s >= 0 && s < map.count() && map.rank_of(s) == rank; };
    if (!chunk.finished.contains(micro_batch)) return;
    if (is_here(stage + 1) && chunks[static_cast<std::size_t>(map.chunk_of(stage + 1))].held.contains(micro_batch)) return;
    chunk.finished.erase(micro_batch);
    chunk.held.erase(micro_batch);
    for (Received* received : {&chunk.activations, &chunk.gradients}) {
      if (!received->slots.holds(micro_batch)) continue;
      received->free_after[received->slots.of(micro_batch)] = passes;
      received->slots.give_back(micro_batch);
    }
    if (is_here(stage - 1)) give_back(rank, map, map.chunk_of(stage - 1), micro_batch, passes, chunks);
  }

  bool is_received(const Place& place) const {
    return place.channel < 0 || channels_[static_cast<std::size_t>(place.channel)].received > place.index;
  }

  bool can_compute(std::size_t rank) const {
    const Rank& r = ranks_[rank];
    if (r.done == r.passes.size()) return false;
    const Turn turn = turn_at(passes_[rank], r.done);
    for (std::size_t n = turn.first; n < turn.end(); ++n) {
      if (!is_received(r.passes[n].needs) || (overlap_ && !is_received(r.passes[n].earlier))) return false;
    }
    // Without overlap, what the turn before has sent has arrived. It had two passes at the most; all before them has anyway.
    for (std::size_t n = r.done; !overlap_ && n > 0 && n + 2 > r.done; --n) {
      if (!is_received(r.passes[n - 1].sends)) return false;
    }
    return true;
  }

  bool can_receive(const Channel& channel) const {
    if (channel.received == channel.messages.size()) return false;
    const Message& next = channel.messages[channel.received];
    return ranks_[channel.sender].done > next.made_by && ranks_[channel.receiver].done >= next.after;
  }

  const std::vector<std::vector<Pass>>& passes_;
  bool overlap_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
  std::map<Key, Place> places_;
};

}  // namespace

std::optional<PassMessage> message_of(const Schedule& schedule, int sender, const Pass& pass) {
  if (pass.kind == PassKind::backward_weight) return std::nullopt;
  const bool gradient = pass.kind != PassKind::forward;
  const int to = schedule.stages.stage(sender, pass.chunk) + (gradient ? -1 : 1);
  if (to < 0 || to >= schedule.stages.count() || schedule.stages.rank_of(to) == sender) return std::nullopt;
  return PassMessage{schedule.stages.rank_of(to), gradient, schedule.stages.chunk_of(to), pass.micro_batch};
}

bool may_receive_one_pass_ahead(const Schedule& schedule) {
  return Play(schedule, true).ends() && Play(schedule, false).ends();
}

void time_messages(Schedule& schedule) {
  schedule.times.clear();
  if (may_receive_one_pass_ahead(schedule)) return;
  const Timeline timeline = simulate(schedule);
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    std::vector<TimeSpan>& times = schedule.times.emplace_back();
    for (const Turn& turn : turns(schedule.passes[r])) {
      const TimeSpan span{timeline.ranks[r][turn.first].begin, timeline.ranks[r][turn.end() - 1].end};
      times.insert(times.end(), turn.count, span);
    }
  }
}

}  // namespace plait::parallel
