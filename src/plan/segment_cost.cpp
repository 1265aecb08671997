#include "plan/segment_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/quantize.h"

namespace plait::plan {
namespace {

using model::PassWork;
using model::SegmentWork;
using parallel::InstructionKind;

// Of what a product reads and writes, the share of the time that its arithmetic does not hide: tiles that begin and end. So
// products of few columns are slower per FLOP: blocks of GPT-2 124M sustain 611 TFLOP/s where those of Qwen2.5-1.5B reach 666.
constexpr double exposed_traffic = 0.4;

// What a fused attention kernel does to each score beside its two products, in fp32 FLOPs: cuDNN takes 0.83 ps for heads of 64
// on H200, and 1.1 for those of 128, whose products are twice as large.
constexpr double score_flops = 23;

double ratio(double a, double b) { return std::abs(std::log2(a / b)); }

}  // namespace

std::vector<TensorCollective> collectives_of(const model::SegmentSizes& sizes, parallel::InstructionKind kind, int segment,
                                             const parallel::Exchange& exchange) {
  const auto rows = static_cast<double>(sizes.micro_batch.rows());
  if (kind == parallel::InstructionKind::exchange_loss) {
    const std::size_t statistics = 3 * (sizes.compute == DType::f64 ? sizeof(double) : sizeof(float));
    return {{Collective::all_gather, sizes.split.size * rows * static_cast<double>(statistics)}};
  }
  const TensorCollective scale{Collective::all_reduce, ops::scale_floats * sizeof(float)};
  if (parallel::is_scale_exchange(kind)) return {scale};
  const double elements = rows * static_cast<double>(sizes.shape.hidden),
               bytes = elements * static_cast<double>(size_of(sizes.compute));
  std::vector<TensorCollective> list;
  if (exchange.sum)
    list.push_back({sizes.split.sequence_parallel ? Collective::reduce_scatter : Collective::all_reduce, bytes});
  if (!exchange.gather) return list;
  // Of a gradient that is received, all is gathered as it is.
  const bool backward = kind == parallel::InstructionKind::exchange_backward;
  if (exchange.norm && model::gathers_operands(sizes, sizes.shape.kind(backward ? segment - 1 : segment))) {
    list.push_back(scale);
    list.push_back({Collective::all_gather, elements * static_cast<double>(size_of(DType::e4m3))});
  } else {
    list.push_back({Collective::all_gather, bytes});
  }
  return list;
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

PassCost SegmentCosts::cost(InstructionKind kind, int segment, const parallel::Exchange& exchange, model::PassPart part) {
  using Sizes = model::SegmentSizes;
  const auto whole = [&](PassWork SegmentWork::* pass, Measured measured) {
    const auto work = [=](const Sizes& sizes) { return model::segment_work(sizes, segment).*pass; };
    return seconds(segment, work, work, measured);
  };
  // Measured as a whole, and shared between the parts as their nominal times are.
  const auto of_part = [&](PassWork SegmentWork::* all, PassWork SegmentWork::* last, Measured measured) {
    const double whole_seconds = whole(all, measured);
    if (part == model::PassPart::whole) return whole_seconds;
    const auto work = [=](const Sizes& sizes) { return model::segment_work(sizes, segment).*all; };
    const double last_seconds =
        seconds(segment, [=](const Sizes& sizes) { return model::segment_work(sizes, segment).*last; }, work, measured);
    return part == model::PassPart::last ? last_seconds : std::max(whole_seconds - last_seconds, 0.0);
  };
  PassCost cost;
  const auto take_exchange = [&](int of, const PassWork& norm) {
    const SegmentMeasurement* measured = nearest(of);
    cost.beside_compute = measured && measured->tensor > 1;
    cost.alone_seconds = seconds_of(norm, machine_.profile, sizes_.compute);
  };
  if (parallel::is_exchange(kind) || parallel::is_scale_exchange(kind) || kind == InstructionKind::exchange_loss)
    cost.collectives = collectives_of(sizes_, kind, segment, exchange);
  switch (kind) {
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
    case InstructionKind::exchange_forward:
    case InstructionKind::exchange_recompute: {
      const int of = std::min(segment, sizes_.shape.head_segment());
      const auto parts = [=](const Sizes& sizes, bool sum, bool norm) {
        PassWork work = sum && segment > 0 ? model::segment_work(sizes, segment - 1).residual : PassWork{};
        if (norm) work += model::segment_work(sizes, segment).norm_forward;
        return work;
      };
      // Measured with the sum before it wherever ranks share the segment.
      cost.seconds = seconds(
          of, [&](const Sizes& sizes) { return parts(sizes, exchange.sum, exchange.norm); },
          [&](const Sizes& sizes) { return parts(sizes, sizes.split.size > 1, true); }, &SegmentMeasurement::norm_forward);
      take_exchange(of, parts(sizes_, exchange.sum, exchange.norm));
      break;
    }
    case InstructionKind::exchange_backward:
      if (exchange.norm) cost.seconds = whole(&SegmentWork::norm_backward, &SegmentMeasurement::norm_backward);
      take_exchange(segment, exchange.norm ? model::segment_work(sizes_, segment).norm_backward : PassWork{});
      break;
    case InstructionKind::exchange_loss:
    case InstructionKind::exchange_forward_scale:
    case InstructionKind::exchange_backward_scale: break;
    default: throw InternalError("SegmentCosts: " + to_string(kind) + " belongs to no segment");
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
    // Another split changes the shapes of the products, another micro-batch only their rows.
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
  if (!sizes.shape.same_window()) sizes.shape.window = 0;  // as it was measured (bench/calibration_model.h)
  const double nominal = nominal_of(whole, sizes);
  return nominal > 0 ? here * (by->*measured) / nominal : here;
}

}  // namespace plait::plan
