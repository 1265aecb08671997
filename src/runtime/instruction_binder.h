// Binds instructions to the things they work on: each is resolved once, to the views, weights, communicator or link and place
// that it needs, so that issuing it looks nothing up.
#pragma once

#include <functional>
#include <vector>

#include "core/stream.h"
#include "model/transformer.h"
#include "ops/op_context.h"
#include "parallel/rank_plan.h"
#include "runtime/rank_buffers.h"
#include "runtime/rank_groups.h"
#include "runtime/step_inputs.h"

namespace plait::runtime {

// Enqueues an instruction on its stream; never blocks. `ready`, if given, completes when a message that the instruction
// receives is ready to travel (comm/p2p/link.h).
using Issue = std::function<void(const StepInputs& inputs, Event* ready)>;

// The things that instructions are bound to. All of them, and this, must outlive the bound instructions.
struct BindingContext {
  const parallel::RankPlan& plan;
  const RankBuffers& buffers;
  const RankGroups& groups;
  const model::Transformer& transformer;
  ops::OpContext& context;
};

// Binds every instruction of a program, on its stream. A sum of rows and the norm behind it are bound together if the norm can
// add up what the ranks have sent, so the two are issued one after the other. InternalError if a message has no place with its
// link.
std::vector<Issue> bind_instructions(const BindingContext& to, const parallel::Program& program,
                                     const std::vector<StreamRef>& streams);

}  // namespace plait::runtime
