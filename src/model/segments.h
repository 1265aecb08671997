// The model as a list of segments, and each pass through a segment as a list of steps: computations, and the collectives
// between them.
//
// The lists are all that the generator of programs, the planner's estimates and the memory plan know of what tensor-parallel
// ranks say to each other. A collective in the middle of a segment is one more step in a list.
#pragma once

#include <optional>
#include <vector>

#include "core/axis.h"
#include "core/collective.h"
#include "model/activations.h"

namespace plait::model {

// What ranks along some axes do together between two computations.
struct Between {
  Operation operation = Operation::max;
  AxisSet axes;
  friend bool operator==(const Between&, const Between&) = default;
};

// What programs and their proof need to know of a segment.
struct Segment {
  SegmentKind kind = SegmentKind::embedding;
  bool partial = false;  // each tensor-parallel rank computes a part: its product is to be summed, its logits are some columns
  bool by_rows = false;  // those ranks split the residual stream around it by rows (sequence parallelism)
  bool quantized = false;         // its products read FP8 weights
  bool gathers_operands = false;  // rows are gathered in front of it as FP8 operands (model/activations.h)
  bool recomputes_norm = false;   // the norm in front of it is computed again for backward
  // Between one and the next of the computations that its forward is made of, and of those of its backward_input; empty where
  // that is one computation.
  std::vector<Between> in_forward, in_backward;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// Forward and backward_input of the segment are two computations each, as ranks that share FP8 operands agree on a scale
// between them.
bool agrees_on_scales(const SegmentSizes& sizes, int segment);

// All segments of the model, in order.
std::vector<Segment> segments(const SegmentSizes& sizes);

enum class Computation {
  add_residual,    // bias and residual, to the sum of the products of the segment before
  norm,            // the norm in front of the segment, on this rank's rows
  round_norm,      // this rank's rows of the norm's output to FP8 operands
  forward,         // one part of it
  loss,            // of the head, and the gradient of the logits
  backward_input,  // one part of it
  norm_backward,   // from the gradient of the norm's output to that of the segment's input
  round_gradient,  // this rank's rows of the gradient of the segment's input to FP8 operands
  backward_weight
};

// The tensors that collectives of a pass are over.
enum class PassTensor {
  product,           // the segment before's part of a sum, in a lane
  norm,              // of the segment: NormActivations::out
  norm_scale,        // NormActivations::scale
  norm_values,       // NormActivations::values
  statistics,        // of logits, in a lane (ops/cross_entropy.h)
  activation_scale,  // SegmentActivations::scale
  norm_gradient,     // of the norm's output, in a lane
  input_gradient,    // of the segment's input, which is the gradient of the output of the segment before
  input_scale,       // SegmentGradients::output_scale of the segment before
  input_values,      // SegmentGradients::output_values of the segment before
  gradient_scale,    // SegmentGradients::scale
};

struct PassCollective {
  Operation operation = Operation::sum;
  PassTensor tensor = PassTensor::product;
  AxisSet axes;
  std::int64_t elements = 0;  // of the whole tensor
  DType dtype = DType::f32;
  bool into_free = false;  // an earlier collective of the same list has shown that all ranks may be written to
};

struct PassStep {
  Computation computation = Computation::forward;
  int part = 0;                                             // of forward and backward_input
  bool adds_residual = false;                               // of a norm: it does what add_residual does first
  std::optional<PassCollective> collective = std::nullopt;  // instead of a computation
};
using PassSteps = std::vector<PassStep>;

// Steps between segment `segment` and the one before it, in forward. `follows`: the segment before is in the same chunk of a
// pipeline, and its product has still to be summed where it is partial. `precedes`: `segment` is in that chunk. (Only the
// latter at the beginning of a chunk, only the former behind its last segment.)
PassSteps steps_before(const SegmentSizes& sizes, int segment, bool follows, bool precedes);
// The segment's forward, and the loss behind the head.
PassSteps forward_steps(const SegmentSizes& sizes, int segment);
// Once more the norm that forward has not kept: nothing where it has.
PassSteps recompute_steps(const SegmentSizes& sizes, int segment);
// Of the gradient of a chunk's output that another stage sends: each rank receives its own rows.
PassSteps received_gradient_steps(const SegmentSizes& sizes);
// The segment's backward_input, nothing for the embedding.
PassSteps backward_steps(const SegmentSizes& sizes, int segment);
// From there to the segment before. `sent`: the gradient of the input goes to another stage, each rank's rows by themselves.
PassSteps steps_behind_backward(const SegmentSizes& sizes, int segment, bool sent);

}  // namespace plait::model
