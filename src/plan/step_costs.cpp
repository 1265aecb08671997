#include "plan/step_costs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/index.h"
#include "parallel/program/program_set.h"

namespace plait::plan {
namespace {

using parallel::Instruction;
using parallel::InstructionKind;
using parallel::RankPlan;

constexpr double host_link_bytes_per_s = 12e9;  // PCIe Gen3 x16 as it is reached

PassComputation computation_of(const Instruction& i) { return {i.kind, i.segment, i.part, i.adds_residual}; }

TensorCollective tensor_collective(const parallel::Collective& c) {
  return plan::tensor_collective(c.operation, c.elements, c.dtype);
}

// A collective of a few bytes: libraries go up and down a tree.
double tree_seconds(const topology::DeviceProfile& profile, int ranks) {
  if (ranks == 1) return 0;
  return profile.collective_seconds + 2 * std::ceil(std::log2(ranks)) * profile.round_seconds;
}

}  // namespace

double update_bytes(const RankPlan& plan) {
  const auto size = [](DType type) { return static_cast<double>(size_of(type)); };
  const double weight = plan.separate_master ? size(plan.sizes.compute) : 0;
  const double element = size(plan.gradient_type) + 3 * size(plan.master_type) + 4 * size(plan.moment_type) + weight;
  return element * static_cast<double>(plan.flat.state_elements());
}

StepCosts::StepCosts(const Machine& machine, const std::vector<RankPlan>& stages)
    : machine_(machine), communication_(machine_) {
  require(!stages.empty() && static_cast<int>(stages.size()) == stages.front().layout.size(stage_axis),
          "StepCosts: one plan for each pipeline rank");
  layout_ = stages.front().layout;
  traffic_.layout = layout_;
  traffic_.ends = stages.front().ends();
  for (std::size_t p = 0; p < stages.size(); ++p) {
    const RankPlan& plan = stages[p];
    require(plan.coordinates()[stage_axis] == static_cast<int>(p), "StepCosts: plans in the order of pipeline ranks");
    SegmentCosts segments(machine_, plan.sizes, plan.holds(plan.sizes.shape.head_segment()));
    std::map<PassComputation, PassCost> passes;  // the same for all micro-batches
    std::vector<UnplacedCost> items(plan.train.instructions.size());
    for (std::size_t n = 0; n < items.size(); ++n) {
      const Instruction& i = plan.train.instructions[n];
      if (parallel::communicates_in_pass(i)) continue;
      if (i.segment < 0 || parallel::is_collective(i)) {
        items[n].work = work_of(plan, i);
        if (const auto group = parallel::collective_group(i); group && plan.goes_by_links(*group))
          items[n].kernels = reduction_kernels(plan, i);
        continue;
      }
      const auto [known, is_new] = passes.try_emplace(computation_of(i));
      if (is_new) known->second = segments.cost(known->first);
      items[n].pass = known->second;
      items[n].work.seconds = known->second.seconds;
    }
    // The cost of a whole exchange is at its first collective.
    for (const parallel::Exchange& exchange : parallel::exchanges_of(plan.train)) {
      const UnplacedCost cost = exchange_cost(items, plan, exchange);
      for (int n = exchange.first; n <= exchange.last; ++n) items[at(n)] = {};
      items[at(parallel::first_collective(plan.train, exchange))] = cost;
    }
    items_.push_back(std::move(items));
    extrapolated_ = extrapolated_ || segments.extrapolated();
    add_traffic(static_cast<int>(p), plan);
  }
}

StepCosts::UnplacedCost StepCosts::exchange_cost(const std::vector<UnplacedCost>& items, const RankPlan& plan,
                                                 const parallel::Exchange& exchange) const {
  UnplacedCost cost;
  for (int n = exchange.first; n <= exchange.last; ++n) {
    const Instruction& i = plan.train.at(n);
    const PassCost& part = items[at(n)].pass;
    cost.pass.seconds += part.seconds;
    cost.pass.alone_seconds += part.alone_seconds;
    cost.pass.beside_compute = cost.pass.beside_compute || part.beside_compute;
    if (!parallel::is_collective(i)) continue;
    if (const int ranks = layout_.size(i.collective.group.axes); ranks > 1)
      cost.exchanged.push_back({tensor_collective(i.collective), ranks, plan.goes_by_links(*parallel::collective_group(i))});
    cost.longest_by_kernel = plan.exchanges.longest_beside(i.beside);
    cost.gathers_into_free = cost.gathers_into_free || i.collective.into_free;
  }
  cost.work.seconds = cost.pass.seconds;
  // The kernels of an exchange that was timed beside compute are in the seconds of both.
  if (!cost.pass.beside_compute) cost.kernels = cost.pass.seconds;
  return cost;
}

Work StepCosts::collective_of_group(const RankPlan& plan, const Instruction& i) const {
  const auto group = *parallel::collective_group(i);
  const auto ranks = static_cast<int>(plan.members(group.group).size());
  const auto [kind, bytes] = tensor_collective(i.collective);
  return plan.goes_by_links(group) ? communication_.pushes_with_kernels(kind, ranks, bytes, 0, plan.longest_by_kernel(group))
                                   : communication_.collective(kind, ranks, bytes);
}

// Device seconds of the kernels of a reduction by links: they add up the pushed parts and the micro-batches.
double StepCosts::reduction_kernels(const RankPlan& plan, const Instruction& i) const {
  if (i.collective.purpose != Purpose::gradients) return 0;
  const auto members = static_cast<int>(plan.members(i.collective.group).size());
  const auto [kind, bytes] = tensor_collective(i.collective);
  return communication_.push_kernels(kind, members, bytes).device + accumulation(plan, i);
}

// Seconds to add a reduced part of the bucket to the rank's gradients, where every micro-batch is reduced (ZeRO-2).
double StepCosts::accumulation(const RankPlan& plan, const Instruction& i) const {
  if (plan.zero < 2 || i.collective.source == i.collective.destination) return 0;
  const auto elements = static_cast<double>(plan.flat.shard(plan.flat.buckets()[at(i.bucket)]).count);
  return 3 * static_cast<double>(size_of(plan.gradient_type)) * elements / machine_.profile.memory_bytes_per_s;
}

Work StepCosts::work_of(const RankPlan& plan, const Instruction& i) const {
  const topology::DeviceProfile& profile = machine_.profile;
  const auto gradient = static_cast<double>(size_of(plan.gradient_type)),
             weight = static_cast<double>(size_of(plan.sizes.compute));
  const parallel::FlatLayout& flat = plan.flat;
  switch (i.kind) {
    case InstructionKind::load_batch:
      return {.seconds =
                  profile.message_seconds + 8.0 * static_cast<double>(plan.sizes.micro_batch.rows()) / host_link_bytes_per_s};
    case InstructionKind::send_activation:
    case InstructionKind::send_gradient: return {.bytes = static_cast<double>(plan.sizes.own_residual_bytes())};
    case InstructionKind::collective: {
      const bool few_bytes = i.collective.operation == Operation::max || i.collective.operation == Operation::barrier ||
                             i.collective.purpose == Purpose::scalars;
      if (few_bytes) return {.seconds = tree_seconds(profile, static_cast<int>(plan.members(i.collective.group).size()))};
      Work work = collective_of_group(plan, i);
      if (i.collective.purpose == Purpose::gradients) work.seconds += accumulation(plan, i);
      return work;
    }
    case InstructionKind::gradient_norm:
      return {.seconds = profile.kernel_seconds +
                         gradient * static_cast<double>(flat.kept_gradient_elements()) / profile.memory_bytes_per_s};
    case InstructionKind::update: {
      const auto measured = machine_.calibration ? machine_.calibration->update_seconds_per_byte : std::nullopt;
      return {.seconds = 2 * profile.kernel_seconds + measured.value_or(1 / profile.memory_bytes_per_s) * update_bytes(plan)};
    }
    case InstructionKind::scale_weights:
    case InstructionKind::quantize_weights: {
      const bool scale = i.kind == InstructionKind::scale_weights;
      Work work{.seconds = profile.kernel_seconds};
      for (const parallel::QuantizedWeight& w : parallel::quantized_weights(plan.parameters, flat).list) {
        if (flat.bucket_of(w.parameter) != at(i.bucket)) continue;
        const double bytes = (weight + (scale ? 0 : 2)) * static_cast<double>(plan.parameters[w.parameter].shape.elements());
        work.seconds += bytes / profile.memory_bytes_per_s;
      }
      return work;
    }
    case InstructionKind::receive_activation:
    case InstructionKind::receive_gradient: return {};
    default: break;
  }
  throw InternalError("StepCosts: an instruction that it does not know");
}

void StepCosts::add_traffic(int pipeline, const RankPlan& plan) {
  const auto add = [&](const parallel::Collective& c) {
    const auto group = parallel::GroupStream{c.group, parallel::stream_role(c.purpose)};
    if (layout_.lowest_member(c.group, plan.rank, plan.ends()) != plan.rank) return;
    const auto ranks = static_cast<int>(plan.members(c.group).size());
    if (ranks < 2) return;
    const auto [kind, bytes] = tensor_collective(c);
    RingTraffic& traffic = traffic_.of(c.group)[at(pipeline)];
    const bool by_links = plan.goes_by_links(group);
    traffic.bytes += by_links ? push_bytes(kind, ranks, bytes) : ring_share(kind, ranks) * bytes;
    traffic.rounds += by_links ? push_rounds(kind, ranks, bytes) : ring_rounds(kind, ranks);
  };
  for (std::size_t n = 0; n < items_.back().size(); ++n) {
    const UnplacedCost& item = items_.back()[n];
    const Instruction& i = plan.train.instructions[n];
    if (parallel::is_collective(i)) {
      const bool moves = i.collective.purpose == Purpose::activations ||
                         (i.collective.purpose != Purpose::scalars && i.collective.operation != Operation::barrier &&
                          i.collective.operation != Operation::max);
      if (moves) add(i.collective);
    } else if (parallel::is_send(i.kind)) {
      const int to = plan.train.stream_of(i).peer;
      const auto is_same = [&](const ChainTraffic& c) { return c.from == pipeline && c.to == to; };
      auto chain = std::find_if(traffic_.chain.begin(), traffic_.chain.end(), is_same);
      if (chain == traffic_.chain.end()) chain = traffic_.chain.insert(chain, {.from = pipeline, .to = to});
      chain->bytes += item.work.bytes;
      ++chain->messages;
    }
  }
}

Work StepCosts::work(int pipeline, int index, const topology::Way* group_way, const topology::Way* way) const {
  const UnplacedCost& item = items_.at(at(pipeline)).at(at(index));
  if (way) return communication_.message(item.work.bytes, *way);
  Work work = item.work;
  double moving = 0;  // in seconds, as far as a rate is known
  const bool measured = item.pass.beside_compute;
  double kernels = item.kernels;
  double starts = 0, pushed_kernels = 0;  // while nothing computes
  double starts_beside = 0;               // beside compute, without those that the measured seconds include
  for (const auto& [collective, ranks, by_links] : item.exchanged) {
    const auto [kind, bytes] = collective;
    require(group_way != nullptr, "StepCosts::work: the way of an exchange's group");
    const double latency = group_way->latency_us;
    const Work one = by_links ? communication_.pushes(kind, ranks, bytes, latency, item.longest_by_kernel)
                              : communication_.collective(kind, ranks, bytes, latency);
    const bool is_push_alone = by_links && kind == Collective::all_gather && item.gathers_into_free;
    if (by_links && !is_push_alone) {
      const CommunicationCosts::PushKernels pushed = communication_.push_kernels(kind, ranks, bytes);
      pushed_kernels += pushed.seconds;
      if (!measured) kernels += pushed.device;
    }
    starts += one.seconds;
    // The measurement has a kernel in place of this push, which waited for SMs too (comm/communicator.h).
    if (!(measured && is_push_alone)) starts_beside += one.seconds * (1 + one.slowed_by_compute);
    work.bytes += one.bytes;
    work.compute_slowdown = std::max(work.compute_slowdown, one.compute_slowdown);
    if (one.most_gb_per_s > 0) moving += one.bytes / (one.most_gb_per_s * 1e9);
  }
  if (!item.exchanged.empty()) {
    // Three events cost like kernels: the ledger's marks at the beginning and the end, and the wait for another stream. A
    // measured time begins at the wait, so it lacks only the first.
    const double kernel = machine_.profile.kernel_seconds;
    const double alone = (measured ? item.pass.alone_seconds : item.work.seconds) + pushed_kernels + starts + 3 * kernel;
    const double beside = measured ? item.work.seconds + starts_beside + kernel : alone - starts + starts_beside;
    work.seconds = alone;
    work.slowed_by_compute = std::max(beside / alone - 1, 0.0);
  }
  if (moving > 0) work.most_gb_per_s = work.bytes / moving / 1e9;
  if (kernels > 0 && work.bytes > 0 && group_way && group_way->gb_per_s > 0) {
    // Compute beside it loses the device time of the kernels: both run on the same SMs and memory.
    const double most = work.most_gb_per_s > 0 ? std::min(work.most_gb_per_s, group_way->gb_per_s) : group_way->gb_per_s;
    work.compute_slowdown += kernels / (work.seconds + work.bytes / (most * 1e9));
  }
  return work;
}

}  // namespace plait::plan
