#include "plan/estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/batch_split.h"
#include "ops/op_context.h"
#include "parallel/schedule/schedule_timeline.h"

namespace plait::plan {
namespace {

using model::SegmentKind;

// The load of the candidate's ranks; the caller fills in the seconds of passes.
ScheduleLoad load_of(const Candidate& c, const parallel::Schedule& schedule, double micro_batches) {
  const auto ranks = static_cast<double>(c.size[stage_axis]);
  return {.ranks = ranks, .chunks = schedule.stages.count() / ranks, .micro_batches = micro_batches};
}

// The named schedule on the same stages that stands in for a planned one.
ScheduleKind named_stand_in(const Candidate& c) {
  return c.virtual_stages == 1 ? ScheduleKind::zb_h1 : c.virtual_stages == 2 ? ScheduleKind::zb_v : ScheduleKind::interleaved;
}

// Idle seconds of a rank. A schedule without a formula is simulated, with equal costs for all stages.
double bubble_seconds(const Candidate& c, const parallel::Schedule& schedule, const ScheduleLoad& load) {
  if (const ScheduleFigure bubble = schedule_row(c.schedule).bubble) return bubble(load);
  const parallel::PassCosts of_stage{.forward = load.forward / load.chunks,
                                     .backward_input = load.backward_input / load.chunks,
                                     .backward_weight = load.backward_weight / load.chunks};
  return std::max(0.0, simulate(schedule, of_stage).end - load.micro_batches * load.whole());
}

// The most micro-batches for which a rank keeps the activations of all its segments.
double in_flight(const Candidate& c, const parallel::Schedule& schedule, const ScheduleLoad& load) {
  if (const ScheduleFigure most = schedule_row(c.schedule).in_flight) return std::min(most(load), load.micro_batches);
  double most = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    most = std::max(most, static_cast<double>(peak_in_flight(schedule, rank)) / schedule.stages.chunks(rank));
  }
  return most;
}

}  // namespace

Estimator::Estimator(const Config& config, const parallel::Decision& decision, std::int64_t vocab, DeviceKind kind,
                     const Machine& machine, StageCut cut)
    : config_(config),
      decision_(decision),
      vocab_(vocab),
      kind_(kind),
      machine_(machine),
      cuts_stages_(config.parallel.stages.empty() && (cut == StageCut::by_seconds || !keys_left_to_planner(config).empty())) {}

std::vector<parallel::SegmentRange> Estimator::balanced_stages(const parallel::JobOutline& job, const PassSeconds& passes,
                                                               const PassSeconds& beside_head) {
  const auto of = [](const PassSeconds& p, SegmentKind kind) {
    const std::size_t n = index_of(kind);
    return p.forward[n] + p.backward_input[n] + p.backward_weight[n];
  };
  const auto block_of = [&](const PassSeconds& p) { return of(p, SegmentKind::attention) + of(p, SegmentKind::mlp); };
  SegmentParts whole{};
  for (const auto& name : names<SegmentKind>) whole[index_of(name.value)] = of(passes, name.value);
  const double block = block_of(passes);
  // The cost of the head includes the slowdown of the blocks on its rank.
  const double blocks = static_cast<double>(job.sizes.shape.layers) / job.schedule.stages.ranks();
  whole[index_of(SegmentKind::head)] = of(beside_head, SegmentKind::head) + blocks * (block_of(beside_head) - block);
  if (block <= 0) return job.stages;
  std::vector<double> costs;
  for (int segment = 0; segment < job.sizes.shape.segments(); ++segment) {
    // Rounded to sixteenths of a block, so that candidates with nearly equal costs share a split.
    costs.push_back(std::max(1.0, std::round(16 * whole[index_of(job.sizes.shape.kind(segment))] / block)));
  }
  return splits_.split(costs, job.schedule.stages);
}

const Estimator::Elements& Estimator::parameters(const model::SegmentSizes& sizes) {
  const auto [known, is_new] = parameters_.try_emplace(sizes.split.size);
  if (is_new) {
    const auto elements = [&](const std::vector<int>& segments) {
      double sum = 0;
      for (const model::Parameter& p : model::parameters(sizes.shape, sizes.split, segments))
        sum += static_cast<double>(p.shape.elements());
      return sum;
    };
    const int head = sizes.shape.head_segment();
    SegmentParts& alone = known->second.of_kind;
    alone = by_kind(sizes.shape, [&](int segment) { return elements({segment}); });
    known->second.of_both_ends =
        alone[index_of(SegmentKind::embedding)] + alone[index_of(SegmentKind::head)] - elements({0, head});
  }
  return known->second;
}

SegmentParts Estimator::scratch(const model::SegmentSizes& sizes) {
  return by_kind(sizes.shape, [&](int segment) {
    const auto passing = [](const model::TensorSpec& s) { return s.keep != model::Keep::saved; };
    return specs_bytes(activation_specs(sizes, segment), passing) + specs_bytes(norm_specs(sizes, segment), passing) +
           specs_bytes(gradient_specs(sizes, segment), [](const model::TensorSpec&) { return true; });
  });
}

Estimate Estimator::estimate(const Candidate& c, const AxisSpeeds& speeds) {
  const parallel::Layout layout = parallel::make_layout(c.size);
  const std::int64_t pipeline = c.size[stage_axis];
  Config chosen = with(config_, c);
  chosen.comm.braid = Braid::none;  // the simulation accounts for what it hides
  // Planning passes is slow. A planned schedule is estimated as the named one that it is at least as fast as.
  if (c.schedule == ScheduleKind::planned) chosen.parallel.schedule = named_stand_in(c);
  const BatchSplit batch = batch_split(chosen, c.size);
  const std::int64_t whole = batch.micro_batches();
  // The stages of a rank do not depend on the number of micro-batches, and a schedule of many is slow to make.
  const bool has_formulas = schedule_row(c.schedule).bubble != nullptr && schedule_row(c.schedule).in_flight != nullptr;
  const bool any_number = c.schedule == ScheduleKind::planned || whole % pipeline == 0;
  if (has_formulas && batch.is_whole() && any_number) chosen.train.global_batch = pipeline * batch.round();
  parallel::JobOutline job = outline_job(chosen, decision_, vocab_, layout, kind_, &splits_);
  const auto passes_of = [&](bool beside_head) {
    return pass_seconds(machine_, job.sizes, c.size, speeds, job.exchanges, beside_head);
  };
  const PassSeconds without_head = passes_of(false), beside_head = passes_of(true);
  const bool balances = cuts_stages_ && pipeline > 1;
  if (balances) job.stages = balanced_stages(job, without_head, beside_head);
  const Elements& elements = parameters(job.sizes);
  const SegmentParts saved = activation_bytes(job.sizes), once = scratch(job.sizes);

  // The load of each pipeline rank.
  struct Load {
    double forward = 0, backward_input = 0, backward_weight = 0, elements = 0, saved = 0, once = 0;
    double total() const { return forward + backward_input + backward_weight; }
  };
  std::vector<Load> loads(static_cast<std::size_t>(pipeline));
  const int head_rank = job.schedule.stages.rank_of(job.schedule.stages.count() - 1);
  for (int stage = 0; stage < job.schedule.stages.count(); ++stage) {
    const int rank = job.schedule.stages.rank_of(stage);
    const PassSeconds& passes = rank == head_rank ? beside_head : without_head;
    Load& load = loads[static_cast<std::size_t>(rank)];
    const SegmentParts held = kinds_in(job.sizes.shape, job.stages[static_cast<std::size_t>(stage)]);
    const auto sum = [&](const SegmentParts& parts) {
      return std::inner_product(held.begin(), held.end(), parts.begin(), 0.0);
    };
    load.forward += sum(passes.forward);
    load.backward_input += sum(passes.backward_input);
    load.backward_weight += sum(passes.backward_weight);
    load.elements += sum(elements.of_kind);
    load.saved += sum(saved);
    // The two halves of a block run one after the other, and the gradient between them belongs to both.
    const auto any = [&](SegmentKind kind) { return held[index_of(kind)] > 0 ? once[index_of(kind)] : 0; };
    load.once = std::max(
        {load.once, any(SegmentKind::embedding), any(SegmentKind::head), any(SegmentKind::attention) + any(SegmentKind::mlp)});
  }
  // The embedding is on the first stage.
  if (job.schedule.stages.rank_of(0) == head_rank) loads[static_cast<std::size_t>(head_rank)].elements -= elements.of_both_ends;
  const Load& slowest =
      *std::max_element(loads.begin(), loads.end(), [](const Load& a, const Load& b) { return a.total() < b.total(); });

  const CommunicationCosts communication(machine_);
  const auto micro_batches = static_cast<double>(whole);
  Estimate estimate;
  if (balances) estimate.stages = parallel::transformer_blocks(job.stages);
  ScheduleLoad load_of_slowest = load_of(c, job.schedule, micro_batches);
  load_of_slowest.forward = slowest.forward;
  load_of_slowest.backward_input = slowest.backward_input, load_of_slowest.backward_weight = slowest.backward_weight;
  estimate.seconds = micro_batches * slowest.total() + bubble_seconds(c, job.schedule, load_of_slowest);
  if (const RingSpeed& speed = speeds[stage_axis]; pipeline > 1 && speed.gb_per_s > 0) {
    const double bytes = static_cast<double>(job.sizes.own_residual_bytes());
    const topology::Way way{.channels = {}, .gb_per_s = speed.gb_per_s, .latency_us = speed.latency_us, .link = {}};
    const double hop = communication.message(bytes, way).seconds + bytes / (speed.gb_per_s * 1e9);
    // The pipeline fills and drains; in between, messages bound the step only if they take longer than compute.
    estimate.seconds += 2 * static_cast<double>(pipeline - 1) * hop;
    const double passing = micro_batches * load_of_slowest.chunks * bytes / (speed.gb_per_s * 1e9);
    estimate.seconds = std::max(estimate.seconds, passing);
  }
  const auto gradient = static_cast<double>(size_of(job.gradient_type)),
             weight = static_cast<double>(size_of(job.sizes.compute));
  const auto master = static_cast<double>(size_of(job.master_type)), moment = static_cast<double>(size_of(job.moment_type));
  const auto replicas = static_cast<int>(product(c.size, replica_axes));
  const double shard = c.zero > 0 ? 1.0 / replicas : 1.0;
  const model::ModelShape local = job.sizes.shape.local(job.sizes.split.size);
  const auto workspace = static_cast<double>(ops::workspace_bytes(
      kind_, {{job.sizes.micro_batch.batch, job.sizes.micro_batch.sequence, local.heads, local.kv_heads, local.head_dim},
              job.sizes.compute,
              config_.precision.deterministic}));
  const double kept_at_once = in_flight(c, job.schedule, load_of_slowest);
  const RingSpeed between_replicas = slowest_of(speeds, c.size, replica_axes);
  double most_bytes = 0, update = 0, exposed = 0;
  for (const Load& load : loads) {
    const double state = load.elements * shard;
    update = std::max(update, state * (2 * gradient + 3 * master + 4 * moment + weight) / machine_.profile.memory_bytes_per_s);
    if (replicas > 1) {
      const Collective reduction = c.zero > 0 ? Collective::reduce_scatter : Collective::all_reduce;
      const double rounds = c.zero > 1 ? micro_batches : 1;
      const double reduce = rounds * communication.seconds(reduction, replicas, load.elements * gradient, between_replicas);
      const double gather =
          c.zero > 0 ? communication.seconds(Collective::all_gather, replicas, load.elements * weight, between_replicas) : 0;
      // Hidden behind the last backward (all of them under ZeRO-2) and the first forward.
      const double behind = rounds * (load.backward_input + load.backward_weight);
      exposed =
          std::max(exposed, std::max(0.0, reduce - behind) + std::max(0.0, gather - load.forward) + 0.05 * (reduce + gather));
    }
    const double weights = load.elements * weight + (job.separate_master ? state * master : 0);
    const double gradients = c.zero > 1 ? state * gradient : load.elements * gradient;
    const double kept = load.saved * kept_at_once;
    most_bytes = std::max(most_bytes, weights + gradients + 2 * state * moment + kept + load.once + workspace);
  }
  estimate.seconds += update + exposed;
  estimate.bytes = most_bytes;
  return estimate;
}

}  // namespace plait::plan
