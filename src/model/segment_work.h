// What a tensor-parallel rank has to do for one micro-batch in one segment: counted from the shapes.
#pragma once

#include "model/activations.h"

namespace plait::model {

// One pass of one micro-batch through one segment, on one rank.
struct PassWork {
  double matrix_flops = 0;
  double fp8_flops = 0;     // of these, those of products whose operands are FP8
  double matrix_bytes = 0;  // read and written by products
  int matrix_products = 0;
  double attention_flops = 0;  // of what is not masked, as if a sequence were one document
  double attention_scores =
      0;                    // what a fused kernel does to scores beside these products, in forwards of one: exponentials, sums
  double memory_bytes = 0;  // read and written by everything that is no product
  int kernels = 0;          // of that
  PassWork& operator+=(const PassWork& other);
};

struct SegmentWork {
  PassWork forward, backward_input, backward_weight;  // recomputation is part of backward_input
  PassWork forward_last, input_last;     // of these, the last products, where they are a part of their own (agrees_on_scales())
  PassWork norm_forward, norm_backward;  // of the norm in front of it, on this rank's rows
  PassWork residual;                     // bias and residual to a sum over ranks, on this rank's rows
  PassWork loss;                         // of the head
};

SegmentWork segment_work(const SegmentSizes& sizes, int segment);

}  // namespace plait::model
