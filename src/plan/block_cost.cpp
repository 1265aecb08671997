#include "plan/block_cost.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace plait::plan {
namespace {

using parallel::InstructionKind;

template <typename Passes>
const auto& pass_of(const Passes& passes, InstructionKind kind) {
  switch (kind) {
    case InstructionKind::forward: return passes.forward;
    case InstructionKind::backward_input: return passes.backward_input;
    case InstructionKind::backward_weight: return passes.backward_weight;
    default: throw InternalError("BlockCosts: a pass is forward or a part of backward");
  }
}

BlockKind kind_of(const model::BlockSizes& sizes, int block) {
  if (block == 0) return BlockKind::embedding;
  return block == sizes.shape.head_block() ? BlockKind::head : BlockKind::transformer;
}

double ratio(double a, double b) { return std::abs(std::log2(a / b)); }

}  // namespace

BlockCosts::BlockCosts(const Machine& machine, const model::BlockSizes& sizes) : machine_(machine), sizes_(sizes) {}

PassCost BlockCosts::cost(InstructionKind kind, int block) {
  const PassWork work = pass_of(block_work(sizes_, block), kind);
  return {.seconds = seconds_of(work, machine_.profile, sizes_.compute) * correction(kind, block),
          .gathers = work.gathers,
          .scatters = work.scatters,
          .all_reduces = work.all_reduces,
          .collective_bytes = work.collective_bytes};
}

double BlockCosts::correction(InstructionKind kind, int block) {
  if (!machine_.calibration) return 1;
  const BlockMeasurement* nearest = nullptr;
  double nearest_distance = std::numeric_limits<double>::infinity();
  for (const BlockMeasurement& m : machine_.calibration->blocks) {
    if (m.kind != kind_of(sizes_, block)) continue;
    // Another split changes the shapes of the products, another micro-batch only their rows.
    const double distance = 4 * ratio(m.tensor, sizes_.split.size) +
                            ratio(static_cast<double>(m.micro_batch), static_cast<double>(sizes_.micro_batch.batch)) +
                            (m.recompute == sizes_.recompute ? 0 : 0.5);
    if (distance < nearest_distance) nearest = &m, nearest_distance = distance;
  }
  if (!nearest) return 1;
  if (nearest_distance > 0) extrapolated_ = true;
  model::BlockSizes sizes = sizes_;
  sizes.split.size = nearest->tensor;
  sizes.split.sequence_parallel = sizes.split.sequence_parallel && nearest->tensor > 1;
  sizes.micro_batch.batch = nearest->micro_batch;
  sizes.recompute = nearest->recompute;
  const double nominal = seconds_of(pass_of(block_work(sizes, block), kind), machine_.profile, sizes.compute);
  return nominal > 0 ? pass_of(*nearest, kind) / nominal : 1;
}

}  // namespace plait::plan
