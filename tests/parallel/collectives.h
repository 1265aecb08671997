// Predicates that tell collectives apart, for tests that look for one.
#pragma once

#include "parallel/program/program.h"

namespace plait::parallel {

inline bool reduces_gradients(const Instruction& i) {
  return is_collective(i) && i.collective.destination.kind == BufferKind::gradient_sums;
}
inline bool reduces_gradients(const Instruction& i, const Group& group) {
  return reduces_gradients(i) && i.collective.group == group;
}
inline bool gathers_weights(const Instruction& i) {
  return is_collective(i) && i.collective.destination.kind == BufferKind::weights;
}
inline bool sums_scalars(const Instruction& i) { return is_collective(i) && i.collective.purpose == Purpose::scalars; }
inline bool agrees_on(const Instruction& i, model::PassTensor scale) {
  return is_collective(i) && i.collective.tensor == scale;
}
inline bool sums_rows(const Instruction& i) {
  return communicates_in_pass(i) &&
         (i.collective.operation == Operation::sum || i.collective.operation == Operation::reduce_scatter);
}
inline bool shares_weight_scales(const Instruction& i) {
  return is_collective(i) && i.collective.destination.kind == BufferKind::weight_scales;
}

// A collective for programs written by hand.
inline Collective gradient_sum(const Group& group = groups::replicas, int bucket = 0) {
  return {.group = group,
          .purpose = Purpose::gradients,
          .source = {BufferKind::gradients, bucket, 0},
          .destination = {BufferKind::gradient_sums, bucket, 0}};
}
inline Collective weight_gather(int bucket = 0) {
  return {.operation = Operation::all_gather,
          .group = groups::replicas,
          .purpose = Purpose::weights,
          .source = {BufferKind::weights, bucket, 0},
          .destination = {BufferKind::weights, bucket, 0}};
}
inline Collective scalar_sum(const Group& group = groups::world) {
  return {.group = group, .source = {BufferKind::scalars, 0, 0}, .destination = {BufferKind::scalars, 0, 0}};
}
inline Collective barrier(const Group& group) {
  return {.operation = Operation::barrier,
          .group = group,
          .purpose = Purpose::gradients,
          .source = {BufferKind::arrival, 0, 0},
          .destination = {BufferKind::arrival, 0, 0}};
}
inline Collective row_collective(Operation operation, model::PassTensor tensor, BufferId buffer) {
  return {.operation = operation,
          .group = groups::tensor,
          .purpose = Purpose::activations,
          .source = buffer,
          .destination = buffer,
          .tensor = tensor};
}

}  // namespace plait::parallel
