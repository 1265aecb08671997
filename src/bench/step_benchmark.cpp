#include "bench/step_benchmark.h"

#include <spdlog/fmt/fmt.h>

#include <cstdlib>
#include <map>
#include <optional>

#include "bench/absent_groups.h"
#include "bench/condition_sampler.h"
#include "comm/meeting.h"
#include "core/error.h"
#include "core/format.h"
#include "core/message.h"
#include "core/statistics.h"
#include "data/tokenizer.h"
#include "launch/launch.h"
#include "launch/settled_job.h"
#include "model/model_flops.h"
#include "parallel/ledger_json.h"
#include "parallel/plan_json.h"
#include "site/devices.h"
#include "site/outside_launcher.h"
#include "train/batch_sources.h"
#include "train/learning_rate.h"
#include "train/report/ledger_text.h"
#include "train/report/measurement.h"
#include "train/session.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;

// Time by kind of instruction and of segment.
Json breakdown(const parallel::RankPlan& plan, const std::vector<float>& milliseconds) {
  std::map<std::string, std::pair<int, double>> sums;
  for (std::size_t n = 0; n < milliseconds.size(); ++n) {
    const parallel::Instruction& i = plan.train.instructions[n];
    std::string name = kind_text(i);
    if (i.segment >= 0) name += " " + plait::to_string(plan.sizes.shape.kind(i.segment));
    sums[name].first += 1;
    sums[name].second += static_cast<double>(milliseconds[n]);
  }
  Json list = Json::array();
  for (const auto& [name, sum] : sums) {
    list.push_back({{"instruction", name}, {"count", sum.first}, {"ms", sum.second}});
  }
  return list;
}

// The load average of the last minute: processes that ran or wanted to.
std::optional<double> load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? std::optional(load) : std::nullopt;
}

struct MeasuredSteps {
  std::vector<double> milliseconds;
  parallel::LedgerSum ledger;
  runtime::StepResult last;
  std::vector<train::DeviceConditions> conditions;
  double data_stalled_ms = 0;  // per step
};

MeasuredSteps measure_steps(const StepBenchmarkRequest& request, runtime::Interpreter& interpreter,
                            train::TrainingBatches& batches, const train::LearningRate& learning_rate,
                            ConditionSampler* conditions) {
  MeasuredSteps measured;
  std::int64_t warmup = request.warmup;
  const auto take = [&](const runtime::StepResult& result) {
    if (result.halted) {          // updates do nothing after that, which takes less time
      interpreter.synchronize();  // steps behind it read batches, which are about to be freed
      throw Error(
          fmt::format("step {} is not finite (loss {}, gradient norm {}), so there is no step to time: a smaller "
                      "train.optimizer.lr makes smaller steps before it",
                      result.update, unsigned_nan(result.loss), unsigned_nan(result.grad_norm)));
    }
    measured.last = result;
    const std::int64_t total = warmup + request.steps;
    request.progress(static_cast<double>(result.update) / static_cast<double>(total),
                     fmt::format("step {} of {}", result.update, total));
    if (conditions && result.update == warmup) conditions->begin();
    if (result.update <= warmup) return;
    measured.milliseconds.push_back(static_cast<double>(result.device_ms));
    measured.ledger.add(result.ledger);
  };
  request.progress(0, "");
  for (std::int64_t step = 1; step <= warmup + request.steps; ++step) {
    if (step == warmup + 1 && !interpreter.launch_is_settled()) ++warmup;
    if (step == warmup + 1) measured.data_stalled_ms = -batches.stalled_ms();
    if (interpreter.pending_results() == runtime::Interpreter::results_in_flight) take(interpreter.synchronize_result());
    interpreter.run_step(batches, train::update_settings(request.config, step, learning_rate.at(step - 1)));
  }
  while (interpreter.pending_results() > 0) take(interpreter.synchronize_result());
  if (conditions) measured.conditions = conditions->end();
  measured.data_stalled_ms = (measured.data_stalled_ms + batches.stalled_ms()) / static_cast<double>(request.steps);
  return measured;
}

// Describes the job and its speed.
Json describe(const Config& config, const parallel::RankPlan& plan, Device device, const MeasuredSteps& measured) {
  const Spread times = spread(measured.milliseconds);
  const Interval interval = median_interval(measured.milliseconds);
  const double tokens_per_second = static_cast<double>(plan.tokens_per_step()) / (times.median / 1e3);
  const double flops = model::model_flops_per_token(model::flop_terms(plan.sizes.shape, plan.sequence_length));
  const int ranks = plan.layout.ranks();
  Json json;
  json["model"] = config.model.preset.empty() ? config.run.name : config.model.preset;
  json["device"] = device_name(device);
  json["ranks"] = ranks;
  json["layout"] = parallel::to_json(plan.layout);
  json["schedule"] = plan.schedule.name;
  json["virtual_stages"] = plan.schedule.stages.chunks(plan.coordinates()[stage_axis]);
  json["stages"] = Json::array();
  for (const parallel::SegmentRange& segments : plan.stages) json["stages"].push_back({segments.first, segments.end - 1});
  json["zero"] = plan.zero;
  json["micro_batch"] = plan.sizes.micro_batch.batch;
  json["micro_batches"] = plan.micro_batches;
  json["sequence_length"] = plan.sequence_length;
  json["step_ms"] = {{"median", times.median},
                     {"median_interval", {interval.low, interval.high}},
                     {"mean", mean(measured.milliseconds)},
                     {"min", times.least},
                     {"max", times.most}};
  json["tokens_per_second"] = tokens_per_second;
  json["tflops_per_gpu"] = tokens_per_second * flops / ranks / 1e12;
  if (const std::optional<double> peak = train::peak_flops(config, plan, device)) {
    json["mfu"] = model::model_flops_utilization(flops, tokens_per_second, ranks, *peak);
  }
  json["exposed_comm_ms"] = measured.ledger.mean().exposed_ms();
  return json;
}

// Runs the steps from fresh weights. The document lacks the job's own facts: ledgers, bounds and memory.
std::pair<MeasuredSteps, Json> measure(const StepBenchmarkRequest& request, const data::Tokenizer& tokenizer, Device device,
                                       runtime::Interpreter& interpreter, ConditionSampler* conditions) {
  const Config& config = request.config;
  const parallel::RankPlan& plan = interpreter.plan();
  const auto dataset = data::open_dataset(config, tokenizer, plan.sizes.shape.vocab);
  DeviceMemory host_memory(device);
  const std::int64_t trial = interpreter.launch_is_settled() ? 0 : runtime::GraphTrial::last_step + 1;
  const std::int64_t total = std::max(request.warmup, trial) + request.steps;
  train::TrainingBatches batches(host_memory, plan, dataset, 1, total + 1);
  interpreter.initialize(config.run.seed);
  interpreter.synchronize_warm_up();
  const train::LearningRate learning_rate(config.train.optimizer, std::max(config.train.steps, total + 1));
  const MeasuredSteps measured = measure_steps(request, interpreter, batches, learning_rate, conditions);
  Json json = describe(config, plan, device, measured);
  if (const std::string launch = interpreter.launch_text(); !launch.empty()) json["launch"] = launch;
  json["data_stalled_ms"] = measured.data_stalled_ms;
  json["untuned_shapes"] = interpreter.context().untuned_shapes();
  if (request.breakdown) {
    const std::int64_t next = measured.last.update + 1;
    const auto settings = train::update_settings(config, next, learning_rate.at(next - 1));
    json["breakdown"] = breakdown(plan, interpreter.synchronize_profile(batches, settings));
  }
  return {measured, json};
}

Json memory_json(const train::MemoryReport& memory) {
  return {{"planned_bytes", memory.planned_bytes},
          {"allocated_bytes", memory.allocated_bytes},
          {"device_bytes", memory.device_bytes}};
}

Json measure_rank(const StepBenchmarkRequest& request, const data::Tokenizer& tokenizer, launch::RankContext& rank,
                  train::Session& session) {
  const Config& config = request.config;
  std::optional<topology::Nvml> nvml;
  std::optional<ConditionSampler> conditions;  // on rank 0's host
  if (request.raw && rank.is_main && site::launch_mode(config) != LaunchMode::external) {
    std::vector<Device> devices;
    const site::DeviceChoice choice = site::choose_devices(config);
    for (int r = 0; r < rank.size; ++r) devices.push_back(site::placed_device(config, choice, r, rank.size));
    nvml.emplace();
    conditions.emplace(*nvml, sampled_gpus(*nvml, devices));
  }
  auto [measured, json] = measure(request, tokenizer, rank.device, session.interpreter(), conditions ? &*conditions : nullptr);
  const train::MemoryReport memory = session.memory_report();
  auto meeting = rank.meeting("bench", train::group_options(config, rank.device).timeout);
  const auto ledgers = meeting.gather_on(0, "ledger", measured.ledger.mean());
  const train::RankMemory own{static_cast<double>(memory.planned_bytes), static_cast<double>(memory.allocated_bytes),
                              static_cast<double>(memory.device_bytes)};
  const std::vector<train::RankMemory> memory_by_rank = meeting.gather_on(0, "memory", own);
  json["ledgers"] = ledgers;
  json["exceeded_bounds"] = train::exceeded_bounds(ledgers, config.bounds);
  json["loss"] = measured.last.loss;
  json["memory"] = memory_json(memory);
  if (request.raw) {
    const parallel::RankPlan& plan = session.plan();
    json["measurement"] = train::Measurement{.step_ms = measured.milliseconds,
                                             .ledgers = ledgers,
                                             .memory = memory_by_rank,
                                             .devices = measured.conditions,
                                             .peak_flops = train::peak_flops(config, plan, rank.device),
                                             .load = load_average(),
                                             .tokens_per_step = plan.tokens_per_step(),
                                             .loss = measured.last.loss};
  }
  return json;
}

Json benchmark_rank(StepBenchmarkRequest request, const parallel::Decision& decision, launch::RankContext& rank) {
  if (!rank.is_main) request.progress = no_progress;
  request.progress(0, "setting up");
  // Every rank makes its own tokenizer; training a model first would only cost time.
  const std::unique_ptr<data::Tokenizer> tokenizer = data::create_tokenizer(request.config);
  train::Session session(request.config, decision, tokenizer->vocab(), rank);
  return session.run([&] { return measure_rank(request, *tokenizer, rank, session); });
}

// The planner's decisions would need the other ranks' devices.
parallel::RankPlan plan_alone(const StepBenchmarkRequest& request, std::int64_t vocab, DeviceKind kind) {
  const Config& config = request.config;
  if (const std::vector<std::string> open = keys_left_to_planner(config); !open.empty())
    throw ConfigError({{open.front(), "auto", "must be given for one rank by itself (--alone)", "", 0}});
  const ParallelConfig& p = config.parallel;
  // As in a job of launch.ranks; there need not be as many devices here.
  AxisSizes sizes = p.known_sizes();
  if (sizes[rest_axis] == 0) {
    const std::int64_t others = product(sizes, AxisSet::all().without(rest_axis));
    sizes[rest_axis] = std::max<std::int64_t>(1, config.launch.ranks.value_or(0) / others);
  }
  const parallel::Layout layout = parallel::make_layout(sizes);
  if (request.alone >= layout.ranks())
    throw ConfigError(fmt::format("--alone {}: the layout has ranks 0 to {}", request.alone, layout.ranks() - 1));
  return parallel::make_rank_plan(config, parallel::Decision{}, vocab, layout, static_cast<int>(request.alone), kind);
}

Json benchmark_alone(const StepBenchmarkRequest& request) {
  const Config& config = request.config;
  request.progress(0, "setting up");
  const DeviceKind kind = site::choose_devices(config).kind;
  const Device device{kind, 0};
  const std::unique_ptr<data::Tokenizer> tokenizer = data::create_tokenizer(config);
  const parallel::RankPlan plan = plan_alone(request, tokenizer->vocab(), kind);
  DeviceMemory memory(device);
  runtime::Interpreter interpreter(plan, memory, absent_groups(plan, memory), std::make_shared<runtime::RankLife>());
  auto [measured, json] = measure(request, *tokenizer, device, interpreter, nullptr);
  json["alone"] = request.alone;
  json["ledgers"] = std::vector<parallel::Ledger>{measured.ledger.mean()};
  json["exceeded_bounds"] = Json::array();
  json["memory"] = memory_json({.planned_bytes = plan.memory.total_bytes(),
                                .allocated_bytes = memory.peak_bytes(),
                                .device_bytes = memory.peak_bytes()});
  return json;
}

}  // namespace

int benchmark_step(const StepBenchmarkRequest& asked, const std::function<void(const Json&)>& on_result) {
  if (asked.alone >= 0) {
    on_result(benchmark_alone(asked));
    return 0;
  }
  StepBenchmarkRequest request = asked;
  const auto [job, joined, passed] =
      launch::begin_job([&] { return parallel::DecidedConfig{.config = asked.config, .decision = {}}; });
  request.config = job.config;
  // A study keeps stderr, and takes plait's first line there as the reason why a point failed.
  if (!job.note.empty() && !request.raw) message_to_stderr(job.note);
  bool exceeded = false;  // known to rank 0; if that is a process, it ends with this status, and so does the job
  const launch::LaunchPlan plan = launch::plan_launch(request.config, joined);
  if (!plan.warning.empty()) message_to_stderr(plan.warning);
  const int status = launch::launch(
      plan,
      [&](launch::RankContext& rank) {
        Json result = benchmark_rank(request, job.decision, rank);
        if (!rank.is_main) return;
        if (const auto predicted = job.plan.find("predicted"); predicted != job.plan.end() && !predicted->is_null())
          result["predicted"] = {{"step_ms", predicted->at("step_ms")}, {"machine", predicted->at("machine")}};
        on_result(result);
        exceeded = !result.at("exceeded_bounds").empty();
      },
      request.argv);
  return status == 0 && exceeded ? 1 : status;
}

}  // namespace plait::bench
