// What a tensor-parallel rank has to do for one micro-batch in one segment: counted from the shapes, for devices that were not
// measured and for traffic between ranks.
#pragma once

#include "model/activations.h"
#include "parallel/program.h"
#include "topology/device_profile.h"

namespace plait::plan {

// One pass of one micro-batch through one segment, on one rank.
struct PassWork {
  double matrix_flops = 0;
  int matrix_products = 0;
  double attention_flops = 0;  // of the causal half
  double memory_bytes = 0;     // read and written by everything that is no product
  int kernels = 0;             // of that
  PassWork& operator+=(const PassWork& other);
};

struct SegmentWork {
  PassWork forward, backward_input, backward_weight;  // recomputation is part of backward_input
  PassWork norm_forward, norm_backward;               // of the norm in front of it, on this rank's rows
  PassWork residual;                                  // bias and residual to a sum over ranks, on this rank's rows
  PassWork loss;                                      // of the head
};

SegmentWork segment_work(const model::SegmentSizes& sizes, int segment);

// Collectives of the tensor group.
struct CollectiveCounts {
  // Whole tensors that are gathered, and that are summed over ranks and split (under sequence parallelism) or summed for
  // everyone (without).
  int gathers = 0, scatters = 0, all_reduces = 0;
  double bytes = 0;  // of each of these: the whole tensor
};

// `kind`: exchange_forward, exchange_recompute, exchange_backward or exchange_loss; `exchange`: its parts, of all but the last.
CollectiveCounts collectives_of(const model::SegmentSizes& sizes, parallel::InstructionKind kind,
                                const parallel::Exchange& exchange);

double seconds_of(const PassWork& work, const topology::DeviceProfile& profile, DType dtype);

}  // namespace plait::plan
