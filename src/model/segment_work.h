// The work of one tensor-parallel rank for one micro-batch in one segment, counted from the shapes.
#pragma once

#include "model/activations.h"

namespace plait::model {

// One pass of one micro-batch through one segment, on one rank.
struct PassWork {
  double matrix_flops = 0;
  double fp8_flops = 0;     // the part of matrix_flops in products with FP8 operands
  double matrix_bytes = 0;  // read and written by products
  int matrix_products = 0;
  double attention_flops = 0;   // of unmasked scores, as if a sequence were one document
  double attention_scores = 0;  // a fused kernel's elementwise work, as the number of scores with that cost in a forward
  double memory_bytes = 0;      // read and written by everything but products
  int kernels = 0;              // those that memory_bytes belongs to
  PassWork& operator+=(const PassWork& other);
};

struct SegmentWork {
  PassWork forward, backward_input, backward_weight;  // recomputation is part of backward_input
  PassWork forward_last, input_last;     // the last products, included above, if they are separate parts (agrees_on_scales())
  PassWork norm_forward, norm_backward;  // of the norm in front, on this rank's rows
  PassWork residual;                     // adds bias and residual to a sum over ranks, on this rank's rows
  PassWork loss;                         // of the head
};

SegmentWork segment_work(const SegmentSizes& sizes, int segment);

}  // namespace plait::model
