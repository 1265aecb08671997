// The memory of one rank, as the views that instructions work on.
#pragma once

#include <map>
#include <vector>

#include "core/device.h"
#include "model/transformer.h"
#include "parallel/rank_plan.h"

namespace plait::runtime {

class RankBuffers {
 public:
  // Allocates one arena, symmetric memory if `symmetric` is null, and memory for the received buffers that have no entry in
  // `places`. `places` gives, by buffer, the place in the memory of links where messages arrive. `plan`, the places and that
  // memory must outlive this.
  RankBuffers(const parallel::RankPlan& plan, DeviceMemory& memory, const std::map<parallel::BufferId, std::byte*>& places,
              std::byte* symmetric);

  View weights, gradients, kept_gradients, master, exp_avg, exp_avg_sq;  // flat: parallel/flat_layout.h
  View adamw_table, scalars, evaluation_sums, arrival, optimizer_state, rope_table, workspace, operand_workspace,
      exchange_workspace;
  std::vector<View> norm_ranges;      // FlatLayout::norm_ranges of kept_gradients
  std::vector<model::Batch> batches;  // [slot]
  // [segment of the model]; empty for other ranks' segments.
  std::vector<model::SegmentParameters> segment_weights, segment_gradients;
  std::vector<model::QuantizedParameters> segment_quantized;

  // The weights of a bucket that are FP8 operands too, [out, in], and those operands; empty without FP8.
  const std::vector<ops::QuantizedTensor>& quantized_weights(int bucket) const {
    return bucket_quantized_[static_cast<std::size_t>(bucket)];
  }
  View weight_scales(int bucket) const;  // the scales of all of these together

  // The tensors of a segment's instruction.
  model::SegmentActivations forward_activations(const parallel::Instruction& i) const;
  // Recomputed tensors are where backward keeps them until the weight part has used them.
  model::SegmentActivations backward_activations(const parallel::Instruction& i) const;
  // The gradient of a segment's output, in whichever buffer it is, and what was found beside it.
  model::SegmentGradients output_gradient(const parallel::BufferId& buffer) const;
  model::SegmentGradients gradients_of(const parallel::Program& program, const parallel::Instruction& i) const;
  // The output of the norm in front of an instruction's segment; empty if there is none. `own_norm`: this rank's rows of it.
  model::NormActivations norm(const parallel::Instruction& i) const;
  model::NormActivations own_norm(const parallel::Instruction& i) const;

  // Buffers of the residual stream or its gradient, by parallel::input_buffer() and the like: this rank's rows, and all rows if
  // the buffer has room for them. [rows, hidden].
  View own_rows(const parallel::BufferId& buffer) const;
  View whole(const parallel::BufferId& buffer) const;
  // Buffers between segments and exchanges: parallel::BufferKind::product, norm_gradient, statistics.
  View product(int lane) const { return products_[static_cast<std::size_t>(lane)]; }
  View norm_gradient(int lane) const { return norm_gradients_[static_cast<std::size_t>(lane)]; }
  View statistics(int lane) const { return statistics_[static_cast<std::size_t>(lane)]; }
  // The data that a send or receive instruction carries: [own rows, hidden].
  View message(const parallel::Program& program, const parallel::Instruction& i) const;

  // Buffers that messages are received into.
  std::vector<View> received() const;
  // The bytes of them that are memory of links.
  std::size_t linked_bytes() const { return linked_bytes_; }

  // Views of one bucket. `own`: the part for which this rank keeps optimizer state.
  View bucket_weights(int bucket) const;
  View own_weights(int bucket) const;
  View bucket_gradients(int bucket) const;  // whole gradients, as backward wrote them
  View gradient_shard(int bucket) const;    // this data rank's share of those
  View kept_gradient(int bucket) const;     // the gradients that the update and reductions over further groups work on

 private:
  View view(const model::TensorSpec& spec, int item) const;  // in the arena or the symmetric memory
  View& member(parallel::StateTensor which);
  const parallel::Bucket& bucket(int index) const { return plan_.flat.buckets()[static_cast<std::size_t>(index)]; }
  void bind_state();
  void bind_messages(DeviceMemory& memory, const std::map<parallel::BufferId, std::byte*>& places);
  void bind_buffers();

  const parallel::RankPlan& plan_;
  View quantized_, weight_scales_;
  std::vector<std::vector<ops::QuantizedTensor>> bucket_quantized_;  // in the order of the flat buffers
  Buffer arena_, own_symmetric_;
  std::byte* symmetric_;
  std::vector<Buffer> received_;
  std::size_t linked_bytes_ = 0;
  std::map<std::pair<int, int>, model::NormActivations> norms_;           // (segment, slot)
  std::map<std::pair<int, int>, model::NormActivations> norms_again_;     // (segment, stash)
  std::vector<View> products_, norm_gradients_, statistics_;              // [lane]
  std::map<std::pair<int, int>, model::SegmentActivations> activations_;  // (segment, slot): for forward
  // (segment, stash): the recomputed tensors that backward has instead of scratch.
  std::map<std::pair<int, int>, model::SegmentActivations> recomputed_;
  std::map<std::pair<int, int>, model::SegmentGradients> stashes_;  // (segment, stash), without `output` where it is received
  std::map<parallel::BufferId, View> messages_;
};

}  // namespace plait::runtime
