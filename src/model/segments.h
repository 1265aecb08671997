// The model as a list of segments, and each pass through a segment as a list of steps: computations, and the collectives
// between them.
//
// These lists are the only description of the communication between tensor-parallel ranks; the program generator, the planner's
// estimates and the memory plan all use them. A collective in the middle of a segment is one more step in a list.
#pragma once

#include <optional>
#include <vector>

#include "core/axis.h"
#include "core/collective.h"
#include "model/activations.h"

namespace plait::model {

// A collective along some axes between two parts of a pass.
struct Between {
  Operation operation = Operation::max;
  AxisSet axes;
  friend bool operator==(const Between&, const Between&) = default;
};

// The properties of a segment that programs and their proof use.
struct Segment {
  SegmentKind kind = SegmentKind::embedding;
  bool partial = false;    // each tensor-parallel rank computes a part: its product must be summed, its logits are some columns
  bool by_rows = false;    // the ranks split the residual stream around it by rows (sequence parallelism)
  bool quantized = false;  // its products read FP8 weights
  bool gathers_operands = false;  // its input rows are gathered as FP8 operands (model/activations.h)
  bool recomputes_norm = false;   // the norm in front of it is recomputed for backward
  // The collectives between the parts of its forward and of its backward_input; empty if that has one part.
  std::vector<Between> in_forward, in_backward;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// True if forward and backward_input of the segment have two parts each, between which ranks that share FP8 operands agree on a
// scale.
bool agrees_on_scales(const SegmentSizes& sizes, int segment);

// All segments of the model, in order.
std::vector<Segment> segments(const SegmentSizes& sizes);

enum class Computation {
  add_residual,    // bias and residual, to the summed product of the previous segment
  norm,            // the norm in front of the segment, on this rank's rows
  round_norm,      // rounds this rank's rows of the norm's output to FP8 operands
  forward,         // one part of it
  loss,            // of the head, and the gradient of the logits
  backward_input,  // one part of it
  norm_backward,   // from the gradient of the norm's output to that of the segment's input
  round_gradient,  // rounds this rank's rows of the gradient of the segment's input to FP8 operands
  backward_weight
};

// The tensors of a pass's collectives.
enum class PassTensor {
  product,           // the previous segment's partial sum, in a lane
  norm,              // of the segment: NormActivations::out
  norm_scale,        // NormActivations::scale
  norm_values,       // NormActivations::values
  statistics,        // of logits, in a lane (ops/cross_entropy.h)
  activation_scale,  // SegmentActivations::scale
  norm_gradient,     // of the norm's output, in a lane
  input_gradient,    // of the segment's input: the gradient of the previous segment's output
  input_scale,       // SegmentGradients::output_scale of the previous segment
  input_values,      // SegmentGradients::output_values of the previous segment
  gradient_scale,    // SegmentGradients::scale
};

struct PassCollective {
  Operation operation = Operation::sum;
  PassTensor tensor = PassTensor::product;
  AxisSet axes;
  std::int64_t elements = 0;  // of the whole tensor
  DType dtype = DType::f32;
  bool into_free = false;  // an earlier collective of the list shows that all ranks' memory may be written
};

struct PassStep {
  Computation computation = Computation::forward;
  int part = 0;                                             // of forward and backward_input
  bool adds_residual = false;                               // of a norm: it performs add_residual first
  std::optional<PassCollective> collective = std::nullopt;  // if set, the step is this and no computation
};
using PassSteps = std::vector<PassStep>;

// Forward steps between segment `segment` and the one before it. `follows`: the previous segment is in the same pipeline chunk,
// and its product must still be summed if it is partial. `precedes`: `segment` is in that chunk. (Only `precedes` at the
// beginning of a chunk, only `follows` behind its last segment.)
PassSteps steps_before(const SegmentSizes& sizes, int segment, bool follows, bool precedes);
// The segment's forward, and the loss behind the head.
PassSteps forward_steps(const SegmentSizes& sizes, int segment);
// Recomputes the norm if forward has not kept it; else empty.
PassSteps recompute_steps(const SegmentSizes& sizes, int segment);
// Gathers the gradient of a chunk's output that another stage sends: each rank receives only its own rows.
PassSteps received_gradient_steps(const SegmentSizes& sizes);
// The segment's backward_input, nothing for the embedding.
PassSteps backward_steps(const SegmentSizes& sizes, int segment);
// From there to the previous segment. `sent`: the input gradient goes to another stage, each rank sending its own rows.
PassSteps steps_behind_backward(const SegmentSizes& sizes, int segment, bool sent);

}  // namespace plait::model
