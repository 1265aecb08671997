#include "plan/evaluation.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/batch_split.h"
#include "core/error.h"
#include "core/format.h"
#include "parallel/job_plan.h"
#include "parallel/program/program_set.h"
#include "plan/pass_planning.h"

namespace plait::plan {
namespace {

using parallel::Layout;

// Micro-batches of a shortened step per pipeline rank; the schedule's rhythm settles long before.
constexpr std::int64_t shortened_micro_batches = 4;

// Ranks of a stage differ by kilobytes, in how shards cut parameters. In larger jobs the first rank of each stage stands for
// the others: looking at all would take longer than the rest of the evaluation.
constexpr int most_ranks_one_by_one = 256;

Candidate candidate_of(const Config& config, const Layout& layout) {
  return {.size = layout.sizes(),
          .micro_batch = config.train.micro_batch,
          .virtual_stages = config.parallel.virtual_stages,
          .zero = config.parallel.zero,
          .schedule = config.parallel.schedule.value(),
          .recompute = config.parallel.recompute.value(),
          .stages = config.parallel.stages};
}

AxisLink axis_link(const AxisCost& cost, const topology::Fabric& fabric, std::string_view what) {
  AxisLink link;
  link.used = cost.narrowest.from >= 0;
  if (!link.used) return link;
  link.min_gb_per_s = cost.narrowest.gb_per_s;
  link.link = cost.narrowest.link;
  link.from = cost.narrowest.from, link.to = cost.narrowest.to;
  if (cost.shared_channel >= 0)
    link.shared = fmt::format("{} {} share {}", cost.sharing, what, fabric.channel_name(cost.shared_channel));
  return link;
}

// Whether a step of `few` micro-batches takes the memory that one of `whole` takes. A file is for one number of them, and so
// are passes that were planned.
bool may_be_shortened(const Config& config, const parallel::Decision& decision, const Layout& layout, std::int64_t whole,
                      std::int64_t few) {
  const ScheduleRow& row = schedule_row(config.parallel.schedule.value());
  if (row.in_flight == nullptr || decision.passes) return false;
  const auto most = [&](std::int64_t micro_batches) {
    return row.in_flight({.ranks = static_cast<double>(layout.size(stage_axis)),
                          .chunks = static_cast<double>(row.chunks_with(config.parallel.virtual_stages)),
                          .micro_batches = static_cast<double>(micro_batches)});
  };
  return most(whole) <= most(few);
}

// The part of an evaluation that needs no placement.
Evaluation evaluate_memory(const Config& config, const std::vector<parallel::RankPlan>& stages, const Machine& machine) {
  Evaluation result;
  result.candidate = candidate_of(config, stages.front().layout);
  const Layout& layout = stages.front().layout;
  const bool each = layout.ranks() <= most_ranks_one_by_one;
  const std::vector<std::size_t> planned = each ? parallel::planned_bytes(stages) : std::vector<std::size_t>();
  result.peak_bytes.assign(stages.size(), 0);
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const auto stage = static_cast<std::size_t>(layout.coordinate(rank, stage_axis));
    const std::size_t bytes = each ? planned[static_cast<std::size_t>(rank)] : stages[stage].memory.total_bytes();
    result.rank_bytes.push_back(static_cast<double>(bytes) + library_bytes(machine, stages[stage]));
    result.peak_bytes[stage] = std::max(result.peak_bytes[stage], result.rank_bytes.back());
  }
  const auto fullest = static_cast<std::size_t>(std::ranges::max_element(result.peak_bytes) - result.peak_bytes.begin());
  result.library_bytes = library_bytes(machine, stages[fullest]);
  for (const auto& [kind, bytes] : stages[fullest].memory.bytes_by_kind()) {
    result.bytes_by_kind.emplace_back(kind, static_cast<double>(bytes));
  }
  std::stable_sort(result.bytes_by_kind.begin(), result.bytes_by_kind.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

// By rank, a number: ranks with equal numbers have ways of equal cost for their messages.
std::vector<int> alike_in_ways(const parallel::ProgramSet& programs, const std::vector<int>& gpus, topology::Fabric& fabric) {
  std::map<std::vector<std::tuple<double, double, std::string>>, int> numbers;
  std::vector<int> alike;
  for (int rank = 0; rank < programs.layout.ranks(); ++rank) {
    std::vector<std::tuple<double, double, std::string>> ways;
    for (const parallel::StreamSpec& stream : programs.program(rank).streams) {
      if (stream.role != parallel::StreamRole::send) continue;
      const int peer = programs.layout.moved(rank, stage_axis, stream.peer);
      const topology::Way& way = fabric.message_way(gpus[static_cast<std::size_t>(rank)], gpus[static_cast<std::size_t>(peer)]);
      ways.emplace_back(way.gb_per_s, way.latency_us, way.link);
    }
    alike.push_back(numbers.try_emplace(std::move(ways), static_cast<int>(numbers.size())).first->second);
  }
  return alike;
}

// Links exist only within hosts; a run on several would refuse to begin.
void require_one_host(const parallel::RankPlan& plan, const std::vector<int>& gpus, const topology::Fabric& fabric) {
  const Layout& layout = plan.layout;
  for (const auto& [group, axis] :
       {std::pair(parallel::exchange_group, segment_axis), {parallel::reduction_group, reduced_axis}}) {
    if (!plan.goes_by_links(group)) continue;
    const AxisRow& row = row_of(axis);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const int other = layout.lowest_member(group.group, rank, plan.ends());
      if (fabric.host_of(gpus[static_cast<std::size_t>(rank)]) == fabric.host_of(gpus[static_cast<std::size_t>(other)]))
        continue;
      throw ConfigError(
          fmt::format("{0}=links: {1} ranks {2} and {3} of {4} would be on two hosts, between which there are no links; "
                      "{0}=library needs none",
                      way_key(row.way), row.adjective, other, rank, layout.to_string()));
    }
  }
}

Simulated simulate(const std::vector<parallel::RankPlan>& stages, const StepCosts& costs, const PlacementResult& placement,
                   topology::Fabric& fabric, SimulationOptions options) {
  const Layout& layout = stages.front().layout;
  const std::vector<int>& gpus = placement.gpu_of_rank;
  std::map<parallel::Group, const topology::Way*> group_ways;
  for (const auto& [group, cost] : placement.cost.rings) {
    if (cost.narrowest.from >= 0) group_ways[group] = &fabric.way(cost.narrowest.from, cost.narrowest.to);
  }
  const parallel::ProgramSet programs = parallel::training_programs(stages);
  const WorkOf work_of = [&](int rank, int index) {
    const parallel::Program& program = programs.program(rank);
    const parallel::Instruction& i = program.at(index);
    const topology::Way* way = nullptr;
    if (parallel::is_send(i.kind)) {
      const int peer = layout.moved(rank, stage_axis, program.stream_of(i).peer);
      way = &fabric.message_way(gpus[static_cast<std::size_t>(rank)], gpus[static_cast<std::size_t>(peer)]);
    }
    const auto group_way = group_ways.find(i.collective.group);
    return costs.work(layout.coordinate(rank, stage_axis), index, group_way == group_ways.end() ? nullptr : group_way->second,
                      way);
  };
  options.same_work = alike_in_ways(programs, gpus, fabric);
  return simulate_step(programs, work_of, topology::network_of(fabric), gpus, options);
}

// Fills in the parts that follow from a placement: the ranks' GPUs, links, and the simulated step.
void place_and_simulate(Evaluation& result, const std::vector<parallel::RankPlan>& stages, const Site& site, Placer& placer,
                        const PlacementOptions& options) {
  const StepCosts costs(site.machine, stages);
  result.placement = placer.place(costs.traffic(), options);
  const PlacementCost& cost = result.placement.cost;
  if (!cost.possible()) {
    throw ConfigError("placement: on this topology some ranks of " + stages.front().layout.to_string() +
                      " cannot reach those they need");
  }
  topology::Fabric& fabric = *site.fabric;
  require_one_host(stages.front(), result.placement.gpu_of_rank, fabric);
  for (const AxisRow& row : axis_table)
    result.links[row.axis] = axis_link(row.way == WayKey::none ? cost.messages : cost.along(row.axis), fabric, row.traffic);
  const Simulated simulated = simulate(stages, costs, result.placement, fabric, {});
  result.step_seconds = simulated.step_seconds;
  result.bubble_fraction = simulated.mean_bubble_fraction();
  result.ledger = simulated.mean_ledger();
  result.critical = simulated.critical_sums;
  result.extrapolated = costs.extrapolated();
}

// A setting that makes this item of memory smaller.
std::string remedy_for(const std::string& kind, const Candidate& c) {
  const bool sharded = kind == "optimizer" || kind == "gradients";
  const std::int64_t zero = kind == "gradients" ? 2 : 1;
  if (sharded && product(c.size, replica_axes) > 1 && c.zero < zero) return fmt::format("parallel.zero={}", zero);
  if (sharded || kind == "weights") return "more tensor- or pipeline-parallel ranks";
  if (c.micro_batch > 1) return fmt::format("a train.micro_batch below {}", c.micro_batch);
  if (c.recompute != Recompute::full) return "parallel.recompute=full";
  return "more tensor-parallel ranks";
}

}  // namespace

std::string usable_words(const Machine& machine) {
  return fmt::format("{} of {} can be used ({:.0f} % stay free for the driver and for fragments)",
                     format_bytes(machine.usable_bytes()), format_bytes(machine.profile.memory_bytes), 100 * free_share);
}

double context_bytes(const Machine& machine) {
  const auto measured = machine.calibration ? machine.calibration->context_bytes : std::nullopt;
  return measured.value_or(machine.profile.context_bytes);
}

double library_bytes(const Machine& machine, const parallel::RankPlan& plan) {
  const Calibration none, &measured = machine.calibration ? *machine.calibration : none;
  const std::vector<std::vector<int>> communicators = parallel::communicators_of(plan);
  double bytes = context_bytes(machine);
  if (!communicators.empty()) bytes += measured.collectives_bytes.value_or(machine.profile.collectives_bytes);
  for (const std::vector<int>& members : communicators) {
    // The largest measured group not exceeding this one; the first one measured if that is larger.
    const CommunicatorMeasurement* nearest = nullptr;
    for (const CommunicatorMeasurement& m : measured.communicators) {
      if (!nearest || (m.ranks <= std::ssize(members) && m.ranks > nearest->ranks)) nearest = &m;
    }
    bytes += nearest ? nearest->bytes : machine.profile.communicator_bytes;
  }
  return bytes;
}

double Evaluation::most_bytes() const {
  return peak_bytes.empty() ? 0 : *std::max_element(peak_bytes.begin(), peak_bytes.end());
}

std::vector<parallel::RankPlan> stage_plans(const Config& config, const parallel::Decision& decision, std::int64_t vocab,
                                            int ranks, const Site& site) {
  const Layout layout = parallel::resolve_layout(config.parallel, ranks);
  return plans_passes(config, decision) ? plan_passes(config, decision, vocab, layout, site)
                                        : parallel::make_stage_plans(config, decision, vocab, layout, site.kind);
}

Evaluation evaluate_plans(const Config& config, const std::vector<parallel::RankPlan>& stages, const Site& site, Placer& placer,
                          const PlacementOptions& options) {
  Evaluation result = evaluate_memory(config, stages, site.machine);
  place_and_simulate(result, stages, site, placer, options);
  return result;
}

Evaluation evaluate(const Config& config, const parallel::Decision& decision, std::int64_t vocab, int ranks, const Site& site,
                    Placer& placer, const PlacementOptions& options) {
  return evaluate_plans(config, stage_plans(config, decision, vocab, ranks, site), site, placer, options);
}

Evaluation evaluate_shortened(const Config& config, const parallel::Decision& decision, std::int64_t vocab, int ranks,
                              const Site& site, Placer& placer, const PlacementOptions& options) {
  const Layout layout = parallel::resolve_layout(config.parallel, ranks);
  const BatchSplit batch = batch_split(config, layout.sizes());
  const std::int64_t whole = batch.micro_batches(), few = shortened_micro_batches * layout.size(stage_axis);
  const bool shortened = batch.is_whole() && whole > 2 * few && may_be_shortened(config, decision, layout, whole, 2 * few);
  Config shorter = config;
  if (shortened) shorter.train.global_batch = 2 * few * batch.round();
  const std::vector<parallel::RankPlan> stages = stage_plans(shorter, decision, vocab, ranks, site);
  Evaluation second = evaluate_memory(shorter, stages, site.machine);
  if (!memory_problem(second, site.machine).empty()) return second;
  place_and_simulate(second, stages, site, placer, options);
  if (!shortened) return second;
  shorter.train.global_batch = few * batch.round();
  Evaluation first;  // its memory is not asked for
  place_and_simulate(first, stage_plans(shorter, decision, vocab, ranks, site), site, placer, options);
  const double more = static_cast<double>(whole - 2 * few) / static_cast<double>(few);
  const double bubble = second.bubble_fraction * second.step_seconds;
  const double bubble_of_more = more * (bubble - first.bubble_fraction * first.step_seconds);
  second.step_seconds += more * (second.step_seconds - first.step_seconds);
  second.bubble_fraction = std::max(0.0, bubble + bubble_of_more) / second.step_seconds;
  return second;
}

Simulated simulate_placed(const std::vector<parallel::RankPlan>& stages, const PlacementResult& placement, const Site& site,
                          const SimulationOptions& options) {
  return simulate(stages, StepCosts(site.machine, stages), placement, *site.fabric, options);
}

std::string memory_problem(const Evaluation& evaluation, const Machine& machine) {
  const double most = evaluation.most_bytes();
  if (most <= machine.usable_bytes()) return "";
  std::string items, remedies;
  for (std::size_t n = 0; n < std::min<std::size_t>(3, evaluation.bytes_by_kind.size()); ++n) {
    const auto& [kind, bytes] = evaluation.bytes_by_kind[n];
    items += fmt::format("{}{} {}", n == 0 ? "" : ", ", kind, format_bytes(bytes));
    const std::string remedy = remedy_for(kind, evaluation.candidate);
    if (remedies.find(remedy) == std::string::npos) remedies += (remedies.empty() ? "" : ", ") + remedy;
  }
  return fmt::format("does not fit: needs {} per {}, where {}; the largest items are {}; it takes {}", format_bytes(most),
                     machine.profile.unit, usable_words(machine), items, remedies);
}

}  // namespace plait::plan
