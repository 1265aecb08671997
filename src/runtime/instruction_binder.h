// Binds instructions to what they work on: each is resolved once, to the views, weights, communicator or link and place that it
// needs, so that issuing it looks nothing up.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/stream.h"
#include "model/transformer.h"
#include "ops/op_context.h"
#include "parallel/rank_plan.h"
#include "runtime/rank_buffers.h"
#include "runtime/rank_groups.h"
#include "runtime/step_inputs.h"

namespace plait::runtime {

// Enqueues an instruction on its stream; blocks for nothing. `ready`, if given, completes when a message that it receives is
// ready to travel (comm/p2p/link.h).
using Issue = std::function<void(const StepInputs& inputs, Event* ready)>;

class InstructionBinder {
 public:
  // All of them must outlive what is bound.
  InstructionBinder(const parallel::RankPlan& plan, const RankBuffers& buffers, const RankGroups& groups,
                    const model::Transformer& transformer, ops::OpContext& context)
      : plan_(plan), buffers_(buffers), groups_(groups), transformer_(transformer), context_(context) {}

  // Every instruction of a program, on its stream. A sum of rows and the norm behind it are bound together where the norm can
  // add up what the ranks have sent, so the two are issued one after the other. InternalError where a message has no place with
  // its link.
  std::vector<Issue> bind(const parallel::Program& program, const std::vector<StreamRef>& streams) const;

 private:
  using Program = parallel::Program;
  using Instruction = parallel::Instruction;

  const model::SegmentParameters* weights(int segment) const {
    return &buffers_.segment_weights[static_cast<std::size_t>(segment)];
  }
  const model::QuantizedParameters& quantized(int segment) const {
    return buffers_.segment_quantized[static_cast<std::size_t>(segment)];
  }
  const model::SegmentParameters* weight_gradients(int segment) const {
    return &buffers_.segment_gradients[static_cast<std::size_t>(segment)];
  }
  model::Batch batch(const Instruction& i) const {
    return i.batch_slot < 0 ? model::Batch{} : buffers_.batches[static_cast<std::size_t>(i.batch_slot)];
  }
  // Addends of a sum over ranks, between the collective that brings them and the norm that adds them up.
  using Addends = std::shared_ptr<std::vector<View>>;
  // Nothing unless instruction `n` reduces rows that the next one, a norm, reads and nothing else does.
  Addends addends_of(const Program& program, int n) const;
  // `addends`: of the sum that it is, or that is in front of it, if that is bound so.
  Issue issue_of(const Program& program, const Instruction& i, StreamRef s, const Addends& addends) const;
  int place_of(const Program& program, const Instruction& i) const;
  Issue message(const Program& program, const Instruction& i, StreamRef s) const;
  Issue load_batch(const Instruction& i, StreamRef s) const;
  Issue forward(const Program& program, const Instruction& i, StreamRef s) const;
  Issue loss(const Program& program, const Instruction& i, StreamRef s) const;
  Issue backward(const Program& program, const Instruction& i, StreamRef s) const;
  Issue norm(const Program& program, const Instruction& i, StreamRef s, const Addends& addends) const;
  Issue norm_backward(const Program& program, const Instruction& i, StreamRef s, const Addends& addends) const;
  // This rank's rows of a tensor to those of its FP8 operand, with the scale that is there.
  Issue round(View tensor, View values, View scale, StreamRef s) const;
  // The tensor that a collective of a pass is over, whole.
  View pass_tensor(const Program& program, const Instruction& i) const;
  Issue collective(const Program& program, const Instruction& i, StreamRef s, const Addends& addends) const;
  Issue reduce_gradients(const Instruction& i, StreamRef s) const;
  Issue gradient_norm(StreamRef s) const;
  Issue update(StreamRef s) const;
  Issue scale_weights(const Instruction& i, StreamRef s) const;
  Issue quantize_weights(const Instruction& i, StreamRef s) const;

  const parallel::RankPlan& plan_;
  const RankBuffers& buffers_;
  const RankGroups& groups_;
  const model::Transformer& transformer_;
  ops::OpContext& context_;
};

}  // namespace plait::runtime
