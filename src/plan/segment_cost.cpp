#include "plan/segment_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "model/segments.h"

namespace plait::plan {
namespace {

using model::PassWork;
using model::SegmentWork;
using parallel::InstructionKind;

// The share of a product's memory traffic that its arithmetic does not hide: tiles that begin and end. So products with few
// columns are slower per FLOP: blocks of GPT-2 124M sustain 611 TFLOP/s, those of Qwen2.5-1.5B 666.
constexpr double exposed_traffic = 0.4;

// fp32 FLOPs of a fused attention kernel for each score, beside its two products: cuDNN takes 0.83 ps for heads of 64 on H200,
// and 1.1 for heads of 128, whose products are twice as large.
constexpr double score_flops = 23;

double ratio(double a, double b) { return std::abs(std::log2(a / b)); }

}  // namespace

TensorCollective tensor_collective(Operation operation, std::int64_t elements, DType dtype) {
  const auto kind = [&] {
    switch (operation) {
      case Operation::sum:
      case Operation::max:
      case Operation::barrier: return Collective::all_reduce;
      case Operation::reduce_scatter: return Collective::reduce_scatter;
      case Operation::all_gather: return Collective::all_gather;
    }
    throw InternalError("tensor_collective: unknown operation");
  };
  return {kind(), static_cast<double>(elements) * static_cast<double>(size_of(dtype))};
}

double seconds_of(const PassWork& work, const topology::DeviceProfile& profile, DType dtype) {
  const double rate = topology::matrix_flops(profile, dtype);
  double seconds = (work.matrix_flops - work.fp8_flops) / rate +
                   exposed_traffic * work.matrix_bytes / profile.memory_bytes_per_s +
                   work.matrix_products * profile.matrix_seconds;
  if (work.fp8_flops > 0) seconds += work.fp8_flops / topology::matrix_flops(profile, DType::e4m3);
  if (work.attention_flops > 0) {
    seconds += work.attention_flops / rate + profile.matrix_seconds +
               score_flops * work.attention_scores / topology::matrix_flops(profile, DType::f32);
  }
  return seconds + work.memory_bytes / profile.memory_bytes_per_s + work.kernels * profile.kernel_seconds;
}

SegmentCosts::SegmentCosts(const Machine& machine, const model::SegmentSizes& sizes, bool beside_head)
    : machine_(machine), sizes_(sizes), beside_head_(beside_head) {}

PassCost SegmentCosts::cost(const PassComputation& computation) {
  using Sizes = model::SegmentSizes;
  const int segment = computation.segment;
  const auto whole = [&](PassWork SegmentWork::* pass, Measured measured) {
    const auto work = [=](const Sizes& sizes) { return model::segment_work(sizes, segment).*pass; };
    return seconds(segment, work, work, measured);
  };
  // A pass is measured as a whole; its parts share that time in the proportion of their nominal times.
  const auto of_part = [&](PassWork SegmentWork::* all, PassWork SegmentWork::* last, Measured measured) {
    const double whole_seconds = whole(all, measured);
    if (!model::agrees_on_scales(sizes_, segment)) return whole_seconds;
    const auto work = [=](const Sizes& sizes) { return model::segment_work(sizes, segment).*all; };
    const double last_seconds =
        seconds(segment, [=](const Sizes& sizes) { return model::segment_work(sizes, segment).*last; }, work, measured);
    return computation.part > 0 ? last_seconds : std::max(whole_seconds - last_seconds, 0.0);
  };
  PassCost cost;
  const auto take_exchange = [&](int of, const PassWork& norm) {
    const SegmentMeasurement* measured = nearest(of);
    cost.beside_compute = measured && measured->tensor > 1;
    cost.alone_seconds = seconds_of(norm, machine_.profile, sizes_.compute);
  };
  switch (computation.kind) {
    case InstructionKind::forward:
      cost.seconds = of_part(&SegmentWork::forward, &SegmentWork::forward_last, &SegmentMeasurement::forward);
      break;
    case InstructionKind::backward_input:
      cost.seconds = of_part(&SegmentWork::backward_input, &SegmentWork::input_last, &SegmentMeasurement::backward_input);
      break;
    case InstructionKind::backward_weight:
      cost.seconds = whole(&SegmentWork::backward_weight, &SegmentMeasurement::backward_weight);
      break;
    case InstructionKind::loss: cost.seconds = whole(&SegmentWork::loss, &SegmentMeasurement::loss); break;
    case InstructionKind::add_residual:
    case InstructionKind::norm: {
      const bool norms = computation.kind == InstructionKind::norm, adds = !norms || computation.adds_residual;
      const int of = std::min(segment, sizes_.shape.head_segment());
      const auto parts = [=](const Sizes& sizes, bool sum, bool norm) {
        PassWork work = sum && segment > 0 ? model::segment_work(sizes, segment - 1).residual : PassWork{};
        if (norm) work += model::segment_work(sizes, segment).norm_forward;
        return work;
      };
      // If ranks share the segment, the norm was measured with the sum before it.
      cost.seconds = seconds(
          of, [&](const Sizes& sizes) { return parts(sizes, adds, norms); },
          [&](const Sizes& sizes) { return parts(sizes, sizes.split.size > 1, true); }, &SegmentMeasurement::norm_forward);
      take_exchange(of, parts(sizes_, adds, norms));
      break;
    }
    case InstructionKind::norm_backward:
      cost.seconds = whole(&SegmentWork::norm_backward, &SegmentMeasurement::norm_backward);
      take_exchange(segment, model::segment_work(sizes_, segment).norm_backward);
      break;
    case InstructionKind::round_norm:
    case InstructionKind::round_gradient: break;
    default: throw InternalError("SegmentCosts: " + to_string(computation.kind) + " belongs to no segment");
  }
  return cost;
}

const SegmentMeasurement* SegmentCosts::nearest(int segment) {
  if (!machine_.calibration) return nullptr;
  const SegmentMeasurement* nearest = nullptr;
  double nearest_distance = std::numeric_limits<double>::infinity();
  const model::SegmentKind kind = sizes_.shape.kind(segment);
  for (const SegmentMeasurement& m : machine_.calibration->segments) {
    if (m.kind != kind) continue;
    // Tensor sizes weigh most: another split changes the shapes of the products, another micro-batch only their rows.
    const bool same_mix = m.beside_head == beside_head_ || kind == model::SegmentKind::head;
    const double distance = 4 * ratio(m.tensor, sizes_.split.size) +
                            ratio(static_cast<double>(m.micro_batch), static_cast<double>(sizes_.micro_batch.batch)) +
                            (m.recompute == sizes_.recompute ? 0 : 0.5) + (same_mix ? 0 : 0.25);
    if (distance < nearest_distance) nearest = &m, nearest_distance = distance;
  }
  if (nearest && nearest_distance > 0) extrapolated_ = true;
  return nearest;
}

template <typename Part, typename Whole>
double SegmentCosts::seconds(int segment, const Part& part, const Whole& whole, Measured measured) {
  const auto nominal_of = [&](const auto& work, const model::SegmentSizes& sizes) {
    return seconds_of(work(sizes), machine_.profile, sizes.compute);
  };
  const double here = nominal_of(part, sizes_);
  const SegmentMeasurement* by = nearest(segment);
  if (!by) return here;
  model::SegmentSizes sizes = sizes_;
  sizes.split.size = by->tensor;
  sizes.split.sequence_parallel = sizes.split.sequence_parallel && by->tensor > 1;
  sizes.micro_batch.batch = by->micro_batch;
  sizes.recompute = by->recompute;
  if (!sizes.shape.same_window()) sizes.shape.window = 0;  // like the measured model (bench/calibration_model.h)
  const double nominal = nominal_of(whole, sizes);
  return nominal > 0 ? here * (by->*measured) / nominal : here;
}

}  // namespace plait::plan
