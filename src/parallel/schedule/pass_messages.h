// The messages between the ranks of a schedule: when and into which slots a rank receives them, and whether they keep anybody
// waiting for ever.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// An output or a gradient that one rank sends another, in the terms of the receiver: for which of its passes.
struct PassMessage {
  int sender = 0, receiver = 0;
  bool gradient = false;  // else an activation
  int chunk = 0, micro_batch = 0;
  friend auto operator<=>(const PassMessage&, const PassMessage&) = default;
};

// The message that a pass of `rank` sends. Nothing where the neighbouring stage is on the same rank, or there is none, or the
// pass is a weight part.
std::optional<PassMessage> sent_by(const Schedule& schedule, int rank, const Pass& pass);

// Calls `receive` for every message and `compute` for the passes of every turn of `rank`, in the order of its program. Messages
// are received one turn before the one that needs them, so that they arrive while that is computed (without `overlap` between
// the two), and where Schedule::times says so all that have been sent by then. Those from one rank come in the order in which
// it computes them, which need not be the order in which they are used: those before the one that a pass needs are received
// first.
void visit_step(const Schedule& schedule, int rank, bool overlap, const std::function<void(const PassMessage&)>& receive,
                const std::function<void(std::span<const Pass>)>& compute);

// Slots of one kind of buffer, held per micro-batch: the lowest free one first, so that their number is the most ever in use.
class SlotTable {
 public:
  bool holds(int micro_batch) const { return held_.contains(micro_batch); }
  int take(int micro_batch);      // the one that it holds already, if it does
  int of(int micro_batch) const;  // InternalError if it holds none
  void give_back(int micro_batch);
  int count() const { return count_; }

 private:
  std::map<int, int> held_;  // by micro-batch
  std::set<int> free_;
  int count_ = 0;
};

// A gradient is sent from one of two places in turn, so that computing the next one need not wait for it.
inline constexpr int gradient_out_slots = 2;

struct ChunkSlots {
  SlotTable activations, inputs, stashes, gradients_in;
  std::map<int, int> sent_gradients;  // by micro-batch: where its gradient is until it is sent
  int next_sent_gradient = 0;
  std::set<int> finished;  // micro-batches whose slots are held for the next stage only, which is on this rank too
};

// The slots of a rank's chunks, handed out and given back in the order of visit_step(). `stages` must outlive this.
class RankSlots {
 public:
  RankSlots(const StageMap& stages, int rank);

  ChunkSlots& of(int chunk) { return chunks_[static_cast<std::size_t>(chunk)]; }

  int receive(const PassMessage& message);
  // Takes what the pass writes: before its turn is computed.
  void begin(const Pass& pass);
  // After the turn: if the pass is its chunk's last of the micro-batch, gives back what no stage of this rank uses any more.
  // `freed` is told of the slots in which messages were received.
  using Freed = std::function<void(bool gradient, int chunk, int slot)>;
  void finish(const Pass& pass, const Freed& freed = nullptr);

 private:
  bool is_here(int stage) const { return stage >= 0 && stage < stages_.count() && stages_.rank_of(stage) == rank_; }
  void give_back(int chunk, int micro_batch, const Freed& freed);

  const StageMap& stages_;
  int rank_ = 0;
  std::vector<ChunkSlots> chunks_;
};

// The slot of each message that `rank` receives.
std::map<PassMessage, int> received_slots(const Schedule& schedule, int rank, bool overlap);

// True if it is proved that everybody gets to the end of the step with messages received one turn before the one that needs
// them; Schedule::times must be empty. A message goes straight into a buffer of its receiver, which an earlier micro-batch may
// still fill by then; a sender, which has `gradient_out_slots`, then waits. (Without overlap it waits for every message.)
// False: messages had better be received as they are sent (Schedule::times), which always works.
bool may_receive_one_pass_ahead(const Schedule& schedule);

// Fills Schedule::times where that is not so: before programs are made of the schedule.
void time_messages(Schedule& schedule);

}  // namespace plait::parallel
