// What a tensor-parallel rank has to do for one micro-batch in one segment: counted from the shapes, for devices that were not
// measured and for traffic between ranks.
#pragma once

#include "model/activations.h"
#include "topology/device_profile.h"

namespace plait::plan {

// One pass of one micro-batch through one segment, on one rank.
struct PassWork {
  double matrix_flops = 0;
  int matrix_products = 0;
  double attention_flops = 0;  // of the causal half
  double memory_bytes = 0;     // read and written by everything that is no product
  int kernels = 0;             // of that
  // Collectives of the tensor group, on the compute stream: whole tensors that are gathered, and that are summed over ranks and
  // split (under sequence parallelism) or summed for everyone (without).
  int gathers = 0, scatters = 0, all_reduces = 0;
  double collective_bytes = 0;  // of each of these: the whole tensor [rows, hidden]
  PassWork& operator+=(const PassWork& other);
};

struct SegmentWork {
  PassWork forward, backward_input, backward_weight;
};

// Block 0 is the embedding, the last one the head. Recomputation is part of backward_input.
SegmentWork segment_work(const model::SegmentSizes& sizes, int segment);

// Without the collectives.
double seconds_of(const PassWork& work, const topology::DeviceProfile& profile, DType dtype);

}  // namespace plait::plan
