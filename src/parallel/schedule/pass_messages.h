// The messages between the ranks of a schedule, and whether they keep anybody waiting for ever.
#pragma once

#include <optional>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// A gradient is sent from one of two places in turn, so that computing the next one need not wait for it.
inline constexpr int gradient_out_slots = 2;

// What a pass sends, in the terms of the rank that receives it: for which of its passes.
struct PassMessage {
  int receiver = 0;
  bool gradient = false;  // else an activation
  int chunk = 0, micro_batch = 0;
  friend bool operator==(const PassMessage&, const PassMessage&) = default;
};

// Nothing where the neighbouring stage is on the same rank, or there is none, or the pass is a weight part.
std::optional<PassMessage> message_of(const Schedule& schedule, int sender, const Pass& pass);

// Whether everybody gets to the end of the step if messages are received one turn before the one that needs them. A message
// goes straight into a buffer of its receiver, which an earlier micro-batch may still fill by then; a sender, which has
// `gradient_out_slots`, then waits. (Without overlap it waits for every message.) True says that it is proved; false, that
// messages had better be received as they are sent (Schedule::times), which always works.
bool may_receive_one_pass_ahead(const Schedule& schedule);

// Fills Schedule::times where that is not so: before programs are made of the schedule.
void time_messages(Schedule& schedule);

}  // namespace plait::parallel
