#include "parallel/schedule/pass_messages.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "config/pass_replay.h"
#include "core/error.h"
#include "parallel/schedule/braids.h"
#include "parallel/schedule/schedule_timeline.h"

namespace plait::parallel {
namespace {

// The message that a pass of `rank` sends or, unless `sends`, needs.
std::optional<PassMessage> message_of(const Schedule& schedule, int rank, const Pass& pass, bool sends) {
  const StageMap& stages = schedule.stages;
  if (pass.kind == PassKind::backward_weight) return std::nullopt;
  const bool gradient = pass.kind != PassKind::forward;
  const int here = stages.stage(rank, pass.chunk), there = here + (gradient == sends ? -1 : 1);
  if (there < 0 || there >= stages.count() || stages.rank_of(there) == rank) return std::nullopt;
  const int sender = sends ? here : there, receiver = sends ? there : here;
  return PassMessage{stages.rank_of(sender), stages.rank_of(receiver), gradient, stages.chunk_of(receiver), pass.micro_batch};
}

struct SentMessage {
  PassMessage message;
  std::size_t turn = 0;  // turn of the sender, which sends at the turn's end
  double time = 0;       // the turn's end, by Schedule::times
};

// The messages that a rank receives, by sender, in the sender's order.
std::map<int, std::deque<SentMessage>> messages_to(const Schedule& schedule, int receiver) {
  std::map<int, std::deque<SentMessage>> incoming;
  for (int stage = 1; stage < schedule.stages.count(); ++stage) {
    const int before = schedule.stages.rank_of(stage - 1), behind = schedule.stages.rank_of(stage);
    if (before != behind && (before == receiver || behind == receiver)) incoming[before == receiver ? behind : before];
  }
  for (auto& [sender, sent] : incoming) {
    const auto s = static_cast<std::size_t>(sender);
    std::size_t number = 0;
    for (const Turn& turn : turns(schedule.passes[s])) {
      const double end = schedule.times.empty() ? 0 : schedule.times[s][turn.first].end;
      for (const Pass& pass : passes_of(schedule.passes[s], turn)) {
        const auto message = sent_by(schedule, sender, pass);
        if (message && message->receiver == receiver) sent.push_back({*message, number, end});
      }
      ++number;
    }
  }
  return incoming;
}

// Replays a step in the way that programs are made of it: the turns of every rank and the messages of each pair of ranks, in
// order.
class MessageReplay {
 public:
  MessageReplay(const Schedule& schedule, bool overlap) : schedule_(schedule), overlap_(overlap) {
    for (const std::vector<Pass>& passes : schedule.passes) lists_.emplace_back(turns(passes).size());
    for (int receiver = 0; receiver < schedule.ranks(); ++receiver) add_messages(receiver);
    for (int rank = 0; rank < schedule.ranks(); ++rank) add_turns(rank);
  }

  // True if every rank gets to the end of its list.
  bool ends() const {
    std::vector<ReplayedList> played;
    for (const auto& steps : lists_) played.push_back({steps.size()});
    const auto is_done = [&](const Place& step) { return played[step.list].done > step.n; };
    replay(
        played, [&](std::size_t list, std::size_t n) { return std::ranges::all_of(lists_[list][n].needs, is_done); },
        [&](std::size_t list, std::size_t n, const auto& release) {
          std::ranges::for_each(lists_[list][n].needed_by, release);
        });
    return std::ranges::all_of(played, [](const ReplayedList& list) { return list.done == list.steps; });
  }

 private:
  struct Place {
    std::size_t list = 0, n = 0;
  };
  struct Step {
    std::vector<Place> needs;
    std::vector<std::size_t> needed_by;  // lists
  };

  void need(const Place& step, const Place& needed) {
    lists_[step.list][step.n].needs.push_back(needed);
    lists_[needed.list][needed.n].needed_by.push_back(step.list);
  }

  void add_messages(int receiver) {
    for (const auto& [sender, sent] : messages_to(schedule_, receiver)) {
      Place place{lists_.size(), 0};
      lists_.emplace_back(sent.size());
      for (; place.n < sent.size(); ++place.n) {
        places_[sent[place.n].message] = place;
        need(place, {static_cast<std::size_t>(sender), sent[place.n].turn});
      }
    }
  }

  void add_turns(int rank) {
    RankSlots slots(schedule_.stages, rank);
    Place turn{static_cast<std::size_t>(rank), 0};
    std::map<std::tuple<bool, int, int>, Place> freed;   // by received slot: the last turn that uses it
    std::map<std::pair<int, int>, Place> last_gradient;  // by chunk and place: the last gradient sent from there
    std::vector<Place> sent_before;                      // messages of the turn before, without overlap
    const auto receive = [&](const PassMessage& message) {
      const auto last_use = freed.find({message.gradient, message.chunk, slots.receive(message)});
      if (last_use != freed.end()) need(places_.at(message), last_use->second);
    };
    visit_step(schedule_, rank, overlap_, receive, [&](std::span<const Pass> passes) {
      for (const Place& sent : std::exchange(sent_before, {})) need(turn, sent);
      for (const Pass& pass : passes) {
        slots.begin(pass);
        if (const auto needed = message_of(schedule_, rank, pass, false)) need(turn, places_.at(*needed));
        const auto message = sent_by(schedule_, rank, pass);
        if (!message) continue;
        const Place sent = places_.at(*message);
        if (!overlap_) {
          sent_before.push_back(sent);
        } else if (message->gradient) {
          const int from = slots.of(pass.chunk).sent_gradients.at(pass.micro_batch);
          const auto [last, fresh] = last_gradient.try_emplace({pass.chunk, from}, sent);
          if (!fresh) need(turn, std::exchange(last->second, sent));
        }
      }
      for (const Pass& pass : passes)
        slots.finish(pass, [&](bool gradient, int chunk, int slot) { freed[{gradient, chunk, slot}] = turn; });
      ++turn.n;
    });
  }

  const Schedule& schedule_;
  bool overlap_;
  std::vector<std::vector<Step>> lists_;
  std::map<PassMessage, Place> places_;
};

}  // namespace

std::optional<PassMessage> sent_by(const Schedule& schedule, int rank, const Pass& pass) {
  return message_of(schedule, rank, pass, true);
}

void visit_step(const Schedule& schedule, int rank, bool overlap, const std::function<void(const PassMessage&)>& receive,
                const std::function<void(std::span<const Pass>)>& compute) {
  const std::vector<Pass>& passes = schedule.passes[static_cast<std::size_t>(rank)];
  auto incoming = messages_to(schedule, rank);  // not received yet
  const auto receive_first = [&](std::deque<SentMessage>& sent) {
    receive(sent.front().message);
    sent.pop_front();
  };
  const auto receive_for_turn = [&](std::size_t first) {
    if (first == passes.size()) return;
    for (const Pass& pass : passes_of(passes, turn_at(passes, first))) {
      const auto needed = message_of(schedule, rank, pass, false);
      if (!needed) continue;
      std::deque<SentMessage>& sent = incoming[needed->sender];
      const auto found = std::ranges::find(sent, *needed, &SentMessage::message);
      if (found == sent.end()) continue;  // here already
      for (auto left = found - sent.begin(); left >= 0; --left) receive_first(sent);
    }
  };
  receive_for_turn(0);
  for (const Turn& turn : turns(passes)) {
    for (auto& [sender, sent] : incoming) {
      if (schedule.times.empty()) break;
      const double begin = schedule.times[static_cast<std::size_t>(rank)][turn.first].begin;
      while (!sent.empty() && sent.front().time <= begin) receive_first(sent);
    }
    if (overlap) receive_for_turn(turn.end());
    compute(passes_of(passes, turn));
    if (!overlap) receive_for_turn(turn.end());
  }
}

int SlotTable::take(int micro_batch) {
  if (holds(micro_batch)) return of(micro_batch);
  if (free_.empty()) free_.insert(count_++);
  return held_[micro_batch] = free_.extract(free_.begin()).value();
}

int SlotTable::of(int micro_batch) const {
  const auto it = held_.find(micro_batch);
  require(it != held_.end(), "SlotTable: the micro-batch holds no slot");
  return it->second;
}

void SlotTable::give_back(int micro_batch) {
  free_.insert(of(micro_batch));
  held_.erase(micro_batch);
}

RankSlots::RankSlots(const StageMap& stages, int rank)
    : stages_(stages), rank_(rank), chunks_(static_cast<std::size_t>(stages.chunks(rank))) {}

int RankSlots::receive(const PassMessage& message) {
  ChunkSlots& c = of(message.chunk);
  return (message.gradient ? c.gradients_in : c.inputs).take(message.micro_batch);
}

void RankSlots::begin(const Pass& pass) {
  ChunkSlots& c = of(pass.chunk);
  if (pass.kind == PassKind::forward) c.activations.take(pass.micro_batch);
  if (!yields_gradient(pass.kind)) return;
  c.stashes.take(pass.micro_batch);
  const int previous = stages_.stage(rank_, pass.chunk) - 1;
  if (is_here(previous)) {
    of(stages_.chunk_of(previous)).stashes.take(pass.micro_batch);
  } else if (previous >= 0) {
    c.sent_gradients[pass.micro_batch] = c.next_sent_gradient;
    c.next_sent_gradient = (c.next_sent_gradient + 1) % gradient_out_slots;
  }
}

void RankSlots::finish(const Pass& pass, const Freed& freed) {
  if (!adds_to_weights(pass.kind)) return;
  of(pass.chunk).finished.insert(pass.micro_batch);
  of(pass.chunk).sent_gradients.erase(pass.micro_batch);
  give_back(pass.chunk, pass.micro_batch, freed);
}

// If the next stage is on this rank, it reads and writes this one's slots up to its own weight part.
void RankSlots::give_back(int chunk, int micro_batch, const Freed& freed) {
  ChunkSlots& c = of(chunk);
  const int stage = stages_.stage(rank_, chunk);
  if (!c.finished.contains(micro_batch)) return;
  if (is_here(stage + 1) && of(stages_.chunk_of(stage + 1)).activations.holds(micro_batch)) return;
  c.finished.erase(micro_batch);
  for (const bool gradient : {false, true}) {
    SlotTable& slots = gradient ? c.gradients_in : c.inputs;
    if (!slots.holds(micro_batch)) continue;
    if (freed) freed(gradient, chunk, slots.of(micro_batch));
    slots.give_back(micro_batch);
  }
  c.stashes.give_back(micro_batch);
  c.activations.give_back(micro_batch);
  if (is_here(stage - 1)) give_back(stages_.chunk_of(stage - 1), micro_batch, freed);
}

std::map<PassMessage, int> received_slots(const Schedule& schedule, int rank, bool overlap) {
  RankSlots slots(schedule.stages, rank);
  std::map<PassMessage, int> received;
  const auto compute = [&](std::span<const Pass> passes) {
    for (const Pass& pass : passes) slots.begin(pass);
    for (const Pass& pass : passes) slots.finish(pass);
  };
  visit_step(schedule, rank, overlap, [&](const PassMessage& message) { received[message] = slots.receive(message); }, compute);
  return received;
}

bool may_receive_one_pass_ahead(const Schedule& schedule) {
  require(schedule.times.empty(), "may_receive_one_pass_ahead: the schedule's messages are timed");
  return MessageReplay(schedule, true).ends() && MessageReplay(schedule, false).ends();
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
