#include "plan/estimate.h"

#include <algorithm>
#include <cmath>

#include "model/activations.h"
#include "ops/op_context.h"
#include "parallel/schedule_timeline.h"

namespace plait::plan {
namespace {

using parallel::InstructionKind;

template <typename Sum>
double specs_bytes(const std::vector<model::TensorSpec>& specs, const Sum& counts) {
  double bytes = 0;
  for (const model::TensorSpec& spec : specs) bytes += counts(spec) ? static_cast<double>(spec.bytes()) : 0;
  return bytes;
}

// Of the candidate's ranks; what passes take is left open.
ScheduleLoad load_of(const Candidate& c, const parallel::Schedule& schedule, double micro_batches) {
  const auto ranks = static_cast<double>(c.pipeline);
  return {.ranks = ranks, .chunks = schedule.stages.count() / ranks, .micro_batches = micro_batches};
}

// Idle seconds of a rank. Without a formula: of the passes themselves, with equal costs for all stages.
double bubble_seconds(const Candidate& c, const parallel::Schedule& schedule, const ScheduleLoad& load) {
  if (const ScheduleFigure bubble = schedule_row(c.schedule).bubble) return bubble(load);
  const parallel::PassCosts of_stage{.forward = load.forward / load.chunks,
                                     .backward_input = load.backward_input / load.chunks,
                                     .backward_weight = load.backward_weight / load.chunks};
  return std::max(0.0, simulate(schedule, of_stage).end - load.micro_batches * load.whole());
}

// Micro-batches of which a rank keeps activations of all its blocks, at the most.
double in_flight(const Candidate& c, const parallel::Schedule& schedule, const ScheduleLoad& load) {
  if (const ScheduleFigure most = schedule_row(c.schedule).in_flight) return std::min(most(load), load.micro_batches);
  double most = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    most = std::max(most, static_cast<double>(peak_in_flight(schedule, rank)) / schedule.stages.chunks(rank));
  }
  return most;
}

}  // namespace

Estimator::Estimator(const Config& config, std::int64_t vocab, DeviceKind kind, const Machine& machine)
    : config_(config),
      vocab_(vocab),
      kind_(kind),
      machine_(machine),
      cuts_stages_(config.parallel.stages.empty() && !keys_left_to_planner(config).empty()) {}

Estimator::PassSeconds Estimator::pass_seconds(const model::BlockSizes& sizes, const RingSpeed& tensor) {
  BlockCosts costs(machine_, sizes);
  const CommunicationCosts communication(machine_);
  const auto seconds = [&](InstructionKind kind, int block) {
    const PassCost cost = costs.cost(kind, block);
    double total = cost.seconds;
    const auto add = [&](Collective collective, int times) {
      if (times > 0) total += times * communication.seconds(collective, sizes.split.size, cost.collective_bytes, tensor);
    };
    add(Collective::all_gather, cost.gathers);
    add(Collective::reduce_scatter, cost.scatters);
    add(Collective::all_reduce, cost.all_reduces);
    return total;
  };
  const auto parts = [&](InstructionKind kind) {
    return Parts{seconds(kind, 0), sizes.shape.layers > 0 ? seconds(kind, 1) : 0, seconds(kind, sizes.shape.head_block())};
  };
  return {parts(InstructionKind::forward), parts(InstructionKind::backward_input), parts(InstructionKind::backward_weight)};
}

std::vector<parallel::BlockRange> Estimator::balanced_stages(const parallel::JobOutline& job, const PassSeconds& passes) {
  const auto whole = [&](double Parts::* part) {
    return passes.forward.*part + passes.backward_input.*part + passes.backward_weight.*part;
  };
  const double block = whole(&Parts::block);
  if (block <= 0) return job.stages;
  // In sixteenths of a block, so that candidates which hardly differ share a split.
  const auto rounded = [block](double seconds) { return std::max(1.0, std::round(16 * seconds / block)); };
  std::vector<double> costs(static_cast<std::size_t>(job.sizes.shape.blocks()), rounded(block));
  costs.front() = rounded(whole(&Parts::embedding));
  costs.back() = rounded(whole(&Parts::head));
  return splits_.split(costs, job.schedule.stages);
}

Estimator::Parts Estimator::parameters(const model::BlockSizes& sizes) {
  const auto [known, is_new] = parameters_.try_emplace(sizes.split.size);
  if (is_new) {
    const auto elements = [&](int block) {
      double sum = 0;
      for (const model::Parameter& p : model::parameters(sizes.shape, sizes.split, {block}))
        sum += static_cast<double>(p.shape.elements());
      return sum;
    };
    known->second = {elements(0), elements(1), elements(sizes.shape.head_block())};
  }
  return known->second;
}

Estimator::Parts Estimator::activations(const model::BlockSizes& sizes) {
  const auto saved = [&](int block) {
    return specs_bytes(activation_specs(sizes, block), [](const model::TensorSpec& s) { return s.keep == model::Keep::saved; });
  };
  return {saved(0), saved(1), saved(sizes.shape.head_block())};
}

Estimator::Parts Estimator::scratch(const model::BlockSizes& sizes) {
  const auto once = [&](int block) {
    return specs_bytes(activation_specs(sizes, block),
                       [](const model::TensorSpec& s) { return s.keep == model::Keep::scratch; }) +
           specs_bytes(gradient_specs(sizes, block), [](const model::TensorSpec&) { return true; });
  };
  return {once(0), once(1), once(sizes.shape.head_block())};
}

Estimate Estimator::estimate(const Candidate& c, const AxisSpeeds& speeds) {
  const parallel::Layout layout{static_cast<int>(c.pipeline), static_cast<int>(c.data), static_cast<int>(c.tensor)};
  Config chosen = with(config_, c);
  const std::int64_t round = c.micro_batch * c.data, whole = chosen.train.global_batch / round;
  // Who holds which stage does not depend on the number of micro-batches, but making a schedule of many takes its time.
  const bool has_formulas = schedule_row(c.schedule).bubble != nullptr && schedule_row(c.schedule).in_flight != nullptr;
  if (has_formulas && chosen.train.global_batch % round == 0 && whole % c.pipeline == 0)
    chosen.train.global_batch = c.pipeline * round;
  parallel::JobOutline job = outline_job(chosen, vocab_, layout, kind_, &splits_);
  const PassSeconds passes = pass_seconds(job.sizes, speeds.tensor);
  const bool balances = cuts_stages_ && c.pipeline > 1;
  if (balances) job.stages = balanced_stages(job, passes);
  const Parts elements = parameters(job.sizes), saved = activations(job.sizes), once = scratch(job.sizes);
  const int head = job.sizes.shape.head_block();

  // What each pipeline rank holds.
  struct Load {
    double forward = 0, backward_input = 0, backward_weight = 0, elements = 0, saved = 0, once = 0;
    double total() const { return forward + backward_input + backward_weight; }
  };
  std::vector<Load> loads(static_cast<std::size_t>(c.pipeline));
  std::vector<std::int64_t> stages;
  for (int stage = 0; stage < job.schedule.stages.count(); ++stage) {
    Load& load = loads[static_cast<std::size_t>(job.schedule.stages.rank_of(stage))];
    const parallel::BlockRange& blocks = job.stages[static_cast<std::size_t>(stage)];
    const double first = blocks.first == 0 ? 1 : 0, last = blocks.end == head + 1 ? 1 : 0;
    const double middle = blocks.end - blocks.first - first - last;
    const auto sum = [&](const Parts& parts) { return first * parts.embedding + middle * parts.block + last * parts.head; };
    load.forward += sum(passes.forward);
    load.backward_input += sum(passes.backward_input);
    load.backward_weight += sum(passes.backward_weight);
    load.elements += sum(elements);
    load.saved += sum(saved);
    load.once = std::max({load.once, first * once.embedding, last * once.head, middle > 0 ? once.block : 0});
    if (balances) stages.push_back(static_cast<std::int64_t>(middle));
  }
  const Load& slowest =
      *std::max_element(loads.begin(), loads.end(), [](const Load& a, const Load& b) { return a.total() < b.total(); });

  const CommunicationCosts communication(machine_);
  const auto micro_batches = static_cast<double>(whole);
  Estimate estimate;
  estimate.stages = std::move(stages);
  ScheduleLoad load_of_slowest = load_of(c, job.schedule, micro_batches);
  load_of_slowest.forward = slowest.forward;
  load_of_slowest.backward_input = slowest.backward_input, load_of_slowest.backward_weight = slowest.backward_weight;
  estimate.seconds = micro_batches * slowest.total() + bubble_seconds(c, job.schedule, load_of_slowest);
  if (c.pipeline > 1 && speeds.pipeline.gb_per_s > 0) {
    const double bytes =
        static_cast<double>(job.sizes.own_rows() * job.sizes.shape.hidden) * static_cast<double>(size_of(job.sizes.compute));
    const topology::Way way{
        .channels = {}, .gb_per_s = speeds.pipeline.gb_per_s, .latency_us = speeds.pipeline.latency_us, .link = {}};
    const double hop = communication.message(bytes, way).seconds + bytes / (speeds.pipeline.gb_per_s * 1e9);
    // Filling and draining; in between, messages bound the step only where they take longer than computing does.
    estimate.seconds += 2 * static_cast<double>(c.pipeline - 1) * hop;
    const double passing = micro_batches * load_of_slowest.chunks * bytes / (speeds.pipeline.gb_per_s * 1e9);
    estimate.seconds = std::max(estimate.seconds, passing);
  }
  const auto gradient = static_cast<double>(size_of(job.gradient_type)),
             weight = static_cast<double>(size_of(job.sizes.compute));
  const auto master = static_cast<double>(size_of(job.master_type));
  const auto data = static_cast<int>(c.data);
  const double shard = c.zero > 0 ? 1.0 / data : 1.0;
  const model::ModelShape local = job.sizes.shape.local(job.sizes.split.size);
  const auto workspace = static_cast<double>(ops::workspace_bytes(
      kind_, {{job.sizes.micro_batch.batch, job.sizes.micro_batch.sequence, local.heads, local.kv_heads, local.head_dim},
              job.sizes.compute,
              config_.precision.deterministic}));
  const double kept_at_once = in_flight(c, job.schedule, load_of_slowest);
  double most_bytes = 0, update = 0, exposed = 0;
  for (const Load& load : loads) {
    const double state = load.elements * shard;
    update = std::max(update, state * (2 * gradient + 7 * master + weight) / machine_.profile.memory_bytes_per_s);
    if (data > 1) {
      const Collective reduction = c.zero > 0 ? Collective::reduce_scatter : Collective::all_reduce;
      const double rounds = c.zero > 1 ? micro_batches : 1;
      const double reduce = rounds * communication.seconds(reduction, data, load.elements * gradient, speeds.data);
      const double gather =
          c.zero > 0 ? communication.seconds(Collective::all_gather, data, load.elements * weight, speeds.data) : 0;
      // Hidden behind the last backward (all of them under ZeRO-2) and the first forward.
      const double behind = rounds * (load.backward_input + load.backward_weight);
      exposed =
          std::max(exposed, std::max(0.0, reduce - behind) + std::max(0.0, gather - load.forward) + 0.05 * (reduce + gather));
    }
    const double weights = load.elements * weight + (job.separate_master ? state * master : 0);
    const double gradients = c.zero > 1 ? state * gradient : load.elements * gradient;
    const double kept = load.saved * kept_at_once;
    most_bytes = std::max(most_bytes, weights + gradients + 2 * state * master + kept + load.once + workspace);
  }
  estimate.seconds += update + exposed;
  estimate.bytes = most_bytes;
  return estimate;
}

}  // namespace plait::plan
