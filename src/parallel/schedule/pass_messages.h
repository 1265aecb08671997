// The messages between the ranks of a schedule: when and into which slots a rank receives them, and whether they can make ranks
// wait for each other for ever.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// An output or a gradient that one rank sends to another. Chunk and micro-batch are those of the receiver's pass that needs it.
struct PassMessage {
  int sender = 0, receiver = 0;
  bool gradient = false;  // else an activation
  int chunk = 0, micro_batch = 0;
  friend auto operator<=>(const PassMessage&, const PassMessage&) = default;
};

// The message that a pass of `rank` sends. Nothing if the neighbouring stage is on the same rank or does not exist, or if the
// pass is a weight part.
std::optional<PassMessage> sent_by(const Schedule& schedule, int rank, const Pass& pass);

// Calls `receive` for every message and `compute` for the passes of every turn of `rank`, in the order of its program. Messages
// are received one turn before the one that needs them, so that they arrive while that turn is computed (without `overlap`,
// between the two). If Schedule::times says so, all messages that have been sent by then are received. Messages from one rank
// come in the order in which it computes them, which need not be the order in which they are used: those before the one that a
// pass needs are received first.
void visit_step(const Schedule& schedule, int rank, bool overlap, const std::function<void(const PassMessage&)>& receive,
                const std::function<void(std::span<const Pass>)>& compute);

// Slots of one kind of buffer, held per micro-batch. The lowest free one is taken first, so their number is the most ever in
// use.
class SlotTable {
 public:
  bool holds(int micro_batch) const { return held_.contains(micro_batch); }
  int take(int micro_batch);      // the slot that it holds already, if it holds one
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
  std::map<int, int> sent_gradients;  // by micro-batch: place of its gradient until it is sent
  int next_sent_gradient = 0;
  std::set<int> finished;  // micro-batches whose slots are held for the next stage only, which is on this rank too
};

// The slots of a rank's chunks, handed out and given back in the order of visit_step(). `stages` must outlive this.
class RankSlots {
 public:
  RankSlots(const StageMap& stages, int rank);

  ChunkSlots& of(int chunk) { return chunks_[static_cast<std::size_t>(chunk)]; }

  int receive(const PassMessage& message);
  // Takes the slots that the pass writes; called before its turn is computed.
  void begin(const Pass& pass);
  // Called after the turn: if the pass is its chunk's last of the micro-batch, gives back the slots that no stage of this rank
  // uses any more. `freed` is told of the slots in which messages were received.
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

// True if it is proved that all ranks get to the end of the step with messages received one turn before the one that needs
// them; Schedule::times must be empty. A message goes straight into a buffer of its receiver, which an earlier micro-batch may
// still fill by then; a sender, which has `gradient_out_slots`, then waits. (Without overlap it waits for every message.)
// False: messages had better be received as they are sent (Schedule::times), which always works.
bool may_receive_one_pass_ahead(const Schedule& schedule);

// Fills Schedule::times if that is not proved. Call it before programs are made of the schedule.
void time_messages(Schedule& schedule);

}  // namespace plait::parallel
