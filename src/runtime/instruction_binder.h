// Binds instructions to what they work on: each is resolved once, to the views, weights, communicator or link and place that it
// needs, so that issuing it looks nothing up.
#pragma once

#include <functional>

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

  // InternalError where a message has no place with its link.
  Issue bind(const parallel::Program& program, const parallel::Instruction& instruction, StreamRef stream) const;

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
  // All but who pushes in the tensor group: kernels where little is computed meanwhile.
  Issue issue_of(const Program& program, const Instruction& i, StreamRef s) const;
  int place_of(const Program& program, const Instruction& i) const;
  Issue message(const Program& program, const Instruction& i, StreamRef s) const;
  Issue load_batch(const Instruction& i, StreamRef s) const;
  Issue forward(const Program& program, const Instruction& i, StreamRef s) const;
  Issue loss(const Program& program, const Instruction& i, StreamRef s) const;
  Issue backward(const Program& program, const Instruction& i, StreamRef s) const;
  // Over the tensor group: this rank's rows of `product` become those of the sum.
  std::function<void()> sum(View product, StreamRef s) const;
  // Over the tensor group: the other ranks' rows of `tensor`; or, where `operand` has values, these rounded to them with one
  // scale.
  std::function<void()> gather(const Instruction& i, View tensor, const ops::Quantized& operand, StreamRef s) const;
  Issue exchange_forward(const Program& program, const Instruction& i, StreamRef s) const;
  Issue exchange_backward(const Program& program, const Instruction& i, StreamRef s) const;
  Issue reduce_gradients(const Instruction& i, StreamRef s) const;
  Issue gradient_norm(StreamRef s) const;
  Issue update(StreamRef s) const;
  Issue scale_weights(const Instruction& i, StreamRef s) const;
  Issue quantize_weights(const Instruction& i, StreamRef s) const;
  // The largest of the group's, element by element: of scales, those of the tensors whose parts the ranks have.
  Issue share_scales(const Instruction& i, View scales, StreamRef s) const;

  const parallel::RankPlan& plan_;
  const RankBuffers& buffers_;
  const RankGroups& groups_;
  const model::Transformer& transformer_;
  ops::OpContext& context_;
};

}  // namespace plait::runtime
