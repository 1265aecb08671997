#include "bench/calibration_benchmark.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "bench/calibration_model.h"
#include "bench/collective_slowdown.h"
#include "bench/collectives_benchmark.h"
#include "bench/p2p_benchmark.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "core/index.h"
#include "core/statistics.h"
#include "launch/settled_job.h"
#include "parallel/program/exchanges.h"
#include "plan/step_costs.h"
#include "site/calibration_cache.h"
#include "site/outside_launcher.h"
#include "site/site_planning.h"
#include "topology/routes.h"

namespace plait::bench {
namespace {

using parallel::InstructionKind;
using Json = nlohmann::ordered_json;

// The times of one case on one rank.
struct Times {
  // Seconds, [round][segment of the kind]. Blocks differ in speed, and a step takes their sum.
  std::map<std::pair<model::SegmentKind, InstructionKind>, std::vector<std::vector<double>>> passes;
  std::optional<double> update;  // seconds per byte that it moves; none if a step was not finite
};

// By instruction, the computation that its time counts for: an exchange (parallel/program/exchanges.h) counts as its norm.
std::vector<InstructionKind> computations_of(const parallel::Program& program) {
  std::vector<InstructionKind> kinds;
  for (const parallel::Instruction& i : program.instructions) kinds.push_back(i.kind);
  for (const parallel::Exchange& e : parallel::exchanges_of(program)) {
    for (int n = e.first; n <= e.last; ++n) {
      const InstructionKind kind = program.at(n).kind;
      if (kind != InstructionKind::norm && kind != InstructionKind::norm_backward) continue;
      std::fill(kinds.begin() + e.first, kinds.begin() + e.last + 1, kind);
    }
  }
  return kinds;
}

Times time_model(CalibrationModel& model, int rounds) {
  const std::vector<InstructionKind> computations = computations_of(model.plan().train);

  Times times;
  std::vector<double> updates;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<float> ms = model.synchronize_profile();
    double update = 0;
    std::map<std::pair<InstructionKind, int>, double> passes;  // by segment: a pass may have parts
    for (std::size_t n = 0; n < ms.size(); ++n) {
      const parallel::Instruction& i = model.plan().train.instructions[n];
      const double s = static_cast<double>(ms[n]) / 1e3;
      if (i.kind == InstructionKind::update || i.kind == InstructionKind::gradient_norm) update += s;
      const bool in_model = i.segment >= 0 && i.segment < model.plan().sizes.shape.segments();
      const bool recomputes = i.recomputed && computations[n] == InstructionKind::norm;
      if (in_model && !recomputes && i.micro_batch == CalibrationModel::timed_micro_batch)
        passes[{computations[n], i.segment}] += s;
    }
    for (const auto& [pass, s] : passes) {
      auto& of_rounds = times.passes[{model.plan().sizes.shape.kind(pass.second), pass.first}];
      of_rounds.resize(at(rounds));
      of_rounds[at(round)].push_back(s);
    }
    updates.push_back(update / plan::update_bytes(model.plan()));
  }
  if (model.is_finite()) times.update = median(updates);
  return times;
}

// A case on one rank's device.
struct CaseTimes {
  Times beside_head;
  std::optional<Times> without_head;
  bool short_of_blocks = false;  // there was no room for as many blocks as in the model
};

// nullopt if it does not fit.
std::optional<CaseTimes> measure(const CalibrationRequest& request, std::int64_t vocab, const CalibrationCase& c,
                                 Device device) {
  CaseTimes times;
  {
    const auto model = CalibrationModel::make(request.config, vocab, c, device, CalibrationModel::Stage::with_head);
    if (!model) return std::nullopt;
    times.beside_head = time_model(*model, request.rounds);
    times.short_of_blocks = model->short_of_blocks();
  }
  const auto model = CalibrationModel::make(request.config, vocab, c, device, CalibrationModel::Stage::without_head);
  if (model) times.without_head = time_model(*model, request.rounds);
  return times;
}

// No exchange follows a weight part.
bool is_waited_for(InstructionKind pass) { return pass != InstructionKind::backward_weight; }

// The time of a segment that `tensor` ranks share. Ranks compute at once, and a step waits for the slowest; the ranks of a
// tensor group wait at every exchange, so that the slowest each time counts. A rank that was held up in a round counts in that
// round only.
double seconds_of(model::SegmentKind segment, InstructionKind pass, const std::vector<const Times*>& ranks, int tensor) {
  if (!ranks.front()->passes.contains({segment, pass}))
    return 0;  // the embedding has no input to norm, nor one that needs a gradient
  const auto of_rounds = [&](const Times& rank) -> const auto& { return rank.passes.at({segment, pass}); };
  if (tensor == 1 || !is_waited_for(pass)) {
    double slowest = 0;
    for (const Times* rank : ranks) {
      std::vector<double> means;
      for (const std::vector<double>& round : of_rounds(*rank)) means.push_back(mean(round));
      slowest = std::max(slowest, median(means));
    }
    return slowest;
  }
  std::vector<double> waited_for;
  for (std::size_t round = 0; round < of_rounds(*ranks.front()).size(); ++round) {
    std::vector<double> all;
    for (const Times* rank : ranks) all.insert(all.end(), of_rounds(*rank)[round].begin(), of_rounds(*rank)[round].end());
    waited_for.push_back(expected_largest(all, tensor));
  }
  return median(waited_for);
}

std::set<model::SegmentKind> kinds_in(const Times& times) {
  std::set<model::SegmentKind> kinds;
  for (const auto& [pass, rounds] : times.passes) kinds.insert(pass.first);
  return kinds;
}

std::optional<double> slowest_update(const std::vector<const Times*>& ranks) {
  std::optional<double> slowest = 0;
  for (const Times* rank : ranks)
    slowest = slowest && rank->update ? std::optional(std::max(*slowest, *rank->update)) : std::nullopt;
  return slowest;
}

std::vector<CalibrationCase> cases_of(const CalibrationRequest& request, int ranks) {
  std::vector<int> tensors = request.tensors;
  const ModelConfig& m = request.config.model;
  const std::int64_t kv_heads = m.kv_heads.value_or(m.heads), ffn = m.ffn.value_or(4 * m.hidden);
  for (int t = 1; request.tensors.empty() && t <= ranks; t *= 2) {
    if (m.heads % t == 0 && kv_heads % t == 0 && ffn % t == 0) tensors.push_back(t);
  }
  std::vector<std::int64_t> micro_batches = request.micro_batches;
  if (micro_batches.empty()) {
    micro_batches = {1, 2, 4, 8};
    if (!request.config.train.micro_batch.is_auto()) micro_batches.push_back(request.config.train.micro_batch);
    std::sort(micro_batches.begin(), micro_batches.end());
    micro_batches.erase(std::unique(micro_batches.begin(), micro_batches.end()), micro_batches.end());
  }
  std::vector<Recompute> recomputes;
  for (const Name<Recompute>& name : names<Recompute>) {
    if (request.config.parallel.recompute.value_or(name.value) == name.value) recomputes.push_back(name.value);
  }
  std::vector<CalibrationCase> cases;
  for (const int tensor : tensors) {
    for (const std::int64_t micro_batch : micro_batches) {
      for (const Recompute recompute : recomputes) cases.push_back({tensor, micro_batch, recompute});
    }
  }
  return cases;
}

// An estimated share of the measuring time.
constexpr double share_of_segments = 0.7;

std::string case_text(const CalibrationCase& c) {
  return fmt::format("tensor {}, micro-batch {}, recompute {}", c.tensor, c.micro_batch, to_string(c.recompute));
}

void measure_segments(const CalibrationRequest& request, std::int64_t vocab, const launch::LaunchPlan& launch_plan,
                      plan::Calibration& calibration) {
  const std::vector<CalibrationCase> cases = cases_of(request, launch_plan.ranks);
  std::vector<std::vector<std::optional<CaseTimes>>> told(cases.size());
  std::mutex mutex;
  double context_bytes = 0;
  const double all_of_it = request.communication ? share_of_segments : 1;
  launch::launch(
      launch_plan,
      [&](launch::RankContext& rank) {
        comm::Meeting meeting = rank.meeting("calibrate", request.ranks.timeout);
        const auto busy = meeting.busy();  // a case has no time limit
        for (std::size_t n = 0; n < cases.size(); ++n) {
          meeting.meet("case " + std::to_string(n));
          if (rank.is_main && request.progress)
            request.progress(all_of_it * static_cast<double>(n) / static_cast<double>(cases.size()), case_text(cases[n]));
          std::optional<CaseTimes> times = measure(request, vocab, cases[n], rank.device);
          std::lock_guard lock(mutex);
          told[n].push_back(std::move(times));
          if (rank.is_main && rank.device.is_cuda()) {  // while none of our memory is left on it
            const MemoryInfo memory = memory_info(rank.device);
            context_bytes = std::max(context_bytes, static_cast<double>(memory.total_bytes - memory.free_bytes));
          }
        }
      },
      request.argv);
  if (launch_plan.devices.front().is_cuda()) calibration.context_bytes = context_bytes;
  std::vector<double> updates;
  for (std::size_t n = 0; n < cases.size(); ++n) {
    const CalibrationCase& c = cases[n];
    const auto note = [&](const std::string& words) { request.note(case_text(c) + ": " + words); };
    if (!std::ranges::all_of(told[n], [](const auto& times) { return times.has_value(); })) {
      note("does not fit and is left out");
      continue;
    }
    const auto take = [&](bool beside_head, const std::vector<const Times*>& ranks) {
      for (const model::SegmentKind segment : kinds_in(*ranks.front())) {
        const auto seconds = [&](InstructionKind kind) { return seconds_of(segment, kind, ranks, c.tensor); };
        calibration.segments.push_back({segment, c.tensor, c.micro_batch, c.recompute, beside_head,
                                        seconds(InstructionKind::forward), seconds(InstructionKind::backward_input),
                                        seconds(InstructionKind::backward_weight), seconds(InstructionKind::norm),
                                        seconds(InstructionKind::norm_backward), seconds(InstructionKind::loss)});
      }
      if (const std::optional<double> update = slowest_update(ranks)) {
        updates.push_back(*update);
      } else {
        note(fmt::format("values {} the head were not finite, so its optimizer is not counted",
                         beside_head ? "with" : "without"));
      }
    };
    std::vector<const Times*> beside_head, without_head;
    bool room = true;
    for (const std::optional<CaseTimes>& rank : told[n]) {
      beside_head.push_back(&rank->beside_head);
      if (rank->without_head) without_head.push_back(&*rank->without_head);
      room = room && !rank->short_of_blocks;
    }
    if (!room) note("timed among fewer blocks than the model's, as there is no room for more");
    take(true, beside_head);
    if (without_head.size() == told[n].size()) {
      take(false, without_head);
    } else {
      note("a stage without the head does not fit: its blocks are taken to be as fast as beside the head");
    }
  }
  if (!updates.empty()) calibration.update_seconds_per_byte = *std::min_element(updates.begin(), updates.end());
}

plan::Curve ascending(std::map<double, double> seconds_by_bytes) {
  plan::Curve curve;
  for (const auto& [bytes, seconds] : seconds_by_bytes) curve.points.emplace_back(bytes, seconds);
  return curve;
}

void measure_collectives(const CalibrationRequest& request, int ranks, bool gpus, plan::Calibration& calibration) {
  CollectivesBenchmarkRequest bench;
  bench.ranks = request.ranks;
  bench.ranks.ranks = ranks;
  bench.kinds = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather};
  bench.sizes = {.min = "16K", .max = gpus ? "256M" : "4M", .sizes = {}};
  bench.rounds = request.rounds;
  bench.argv = request.argv;
  benchmark_collectives(
      bench, {[&](const Json& result) {
                for (const Json& collective : result.at("collectives")) {
                  std::map<double, double> curve;
                  for (const Json& r : collective.at("results")) {
                    curve[r.at("bytes").get<double>()] = r.at("microseconds").get<double>() / 1e6;
                  }
                  calibration.collectives.push_back({collective.at("collective").get<std::string>(), ranks, ascending(curve)});
                }
              },
              request.note});
}

// Makes two communicators one after the other and uses them as a step does: a library allocates memory for a collective when it
// is first called.
void measure_communicators(const CalibrationRequest& request, const launch::LaunchPlan& launch_plan,
                           plan::Calibration& calibration) {
  constexpr std::int64_t small = 2, large = std::int64_t{8} << 20;
  std::mutex mutex;
  std::vector<double> used(3);  // before, and after each; on the rank with the most
  launch::launch(
      launch_plan,
      [&](launch::RankContext& rank) {
        DeviceMemory memory(rank.device);
        const Buffer whole = memory.allocate(static_cast<std::size_t>(rank.size) * large * sizeof(float)),
                     part = memory.allocate(large * sizeof(float));
        const Stream stream(rank.device, StreamPriority::high);
        comm::Meeting meeting = rank.meeting("calibrate.memory", request.ranks.timeout);
        std::vector<std::shared_ptr<comm::Communicator>> communicators;
        for (std::size_t n = 0; n < used.size(); ++n) {
          if (n > 0) {
            comm::GroupSpec group;
            group.name = "calibrate.memory." + std::to_string(n);
            group.timeout = request.ranks.timeout;
            group.max_ctas = static_cast<int>(request.config.comm.max_ctas.value_or(0));
            communicators.push_back(join_all(rank, group));
            const View all(whole.data(), DType::f32, {rank.size * large}), own(part.data(), DType::f32, {large});
            comm::Communicator& made = *communicators.back();
            made.all_reduce(stream, all.rows(0, small));
            made.all_reduce(stream, all);
            made.reduce_scatter(stream, all, own);
            made.all_gather(stream, own, all);
          }
          stream.ref().synchronize();
          meeting.meet("made " + std::to_string(n));
          const MemoryInfo info = memory_info(rank.device);
          {
            std::lock_guard lock(mutex);
            used[n] = std::max(used[n], static_cast<double>(info.total_bytes - info.free_bytes));
          }
          meeting.meet("read " + std::to_string(n));
        }
      },
      request.argv);
  const double first = used[1] - used[0], second = std::max(0.0, used[2] - used[1]);
  if (!calibration.collectives_bytes) calibration.collectives_bytes = std::max(0.0, first - second);
  calibration.communicators.push_back({launch_plan.ranks, second});
}

// Measures the model at its largest micro-batch: a small one has many short kernels, which would hide behind their own
// launches.
void measure_slowdown(const CalibrationRequest& request, std::int64_t vocab, const launch::LaunchPlan& launch_plan,
                      plan::Calibration& calibration) {
  CollectiveSlowdownRequest slowdown{.config = request.config,
                                     .vocab = vocab,
                                     .measured = {},
                                     .rounds = request.rounds,
                                     .timeout = request.ranks.timeout,
                                     .argv = request.argv};
  slowdown.measured.micro_batch = 0;
  for (const plan::SegmentMeasurement& segment : calibration.segments) {
    if (segment.tensor == 1 && segment.micro_batch > slowdown.measured.micro_batch)
      slowdown.measured = {1, segment.micro_batch, segment.recompute};
  }
  if (slowdown.measured.micro_batch == 0)
    return request.note("compute beside collectives was not measured: no case without tensor parallelism fits");
  calibration.collective_slowdown = measure_collective_slowdown(slowdown, launch_plan);
  if (!calibration.collective_slowdown)
    request.note("compute beside collectives was not measured: the collectives kept ending too early");
}

// One pair of GPUs for each kind of link; CPUs have none.
std::vector<topology::LinkedPair> pairs_to_measure(const CalibrationRequest& request, int ranks, bool gpus) {
  const std::vector<topology::LinkedPair> any{{"", 0, 1}};
  if (!gpus) return any;
  try {
    std::vector<topology::LinkedPair> pairs = topology::a_pair_of_each_link(site::live_graph(ranks));
    return pairs.empty() ? any : pairs;
  } catch (const ConfigError& error) {
    request.note(fmt::format("using messages between ranks 0 and 1 for all pairs: {}", error.what()));
    return any;
  }
}

// Uses the best mailbox: half of a round trip for each size, as messages of a pipeline usually travel alone.
void measure_messages(const CalibrationRequest& request, const launch::LaunchPlan& launch_plan,
                      plan::Calibration& calibration) {
  const bool gpus = launch_plan.devices.front().is_cuda();
  const std::vector<topology::LinkedPair> pairs = pairs_to_measure(request, launch_plan.ranks, gpus);
  P2pBenchmarkRequest bench;
  bench.ranks = request.ranks;
  bench.ranks.ranks = launch_plan.ranks;
  for (const topology::LinkedPair& pair : pairs) bench.pairs.emplace_back(pair.from, pair.to);
  bench.sizes = {.min = "16K", .max = gpus ? "256M" : "4M", .sizes = {}};
  bench.rounds = request.rounds;
  bench.products = false;
  bench.argv = request.argv;
  benchmark_p2p(bench, {[&](const Json& result) {
                          for (std::size_t p = 0; p < pairs.size(); ++p) {
                            std::map<double, double> curve;
                            std::string transport;
                            for (const Json& method : result.at("pairs").at(p).at("methods")) {
                              if (!method.at("available").get<bool>() || method.at("transport") == "nccl") continue;
                              // The first is the choice of `comm.p2p: auto`; its movers compete.
                              if (transport.empty()) transport = method.at("transport").get<std::string>();
                              if (method.at("transport") != transport) continue;
                              for (const Json& r : method.at("results")) {
                                const double bytes = r.at("bytes").get<double>(),
                                             seconds = r.at("latency_microseconds").get<double>() / 1e6;
                                const auto [known, is_new] = curve.emplace(bytes, seconds);
                                if (!is_new) known->second = std::min(known->second, seconds);
                              }
                            }
                            if (!curve.empty()) calibration.messages.push_back({pairs[p].link, transport, ascending(curve)});
                          }
                        },
                        request.note});
}

launch::LaunchPlan launch_of(const CalibrationRequest& request, int ranks) {
  Config config;
  if (ranks > 0) config.launch.ranks = ranks;
  config.launch.mode = LaunchMode::threads;
  config.launch.device = request.ranks.device;
  return launch::plan_launch(config);
}

}  // namespace

plan::Calibration calibrate(const CalibrationRequest& request) {
  if (const auto outside = site::started_from_outside()) {
    throw ConfigError(
        "bench calibrate: " + outside->launcher +
        " has started more than one process, but this measures one host, with its ranks as threads of one process: start "
        "it once on each kind of host, by itself");
  }
  const launch::LaunchPlan launch_plan = launch_of(request, request.ranks.ranks);
  const bool gpus = launch_plan.devices.front().is_cuda();
  const Auto<std::int64_t>& given = request.config.model.vocab;
  const std::int64_t vocab = given.is_auto() ? data::vocabulary(request.config) : given.value();
  plan::Calibration calibration;
  calibration.device = site::calibration_device(launch_plan.devices.front().kind);
  calibration.model = site::model_key_of(request.config, vocab, launch_plan.devices.front().kind);
  request.note(fmt::format("segments of {} on {} ranks at once", calibration.model, launch_plan.ranks));
  const auto reached = [&](double of_communication, const std::string& what) {
    request.note(what);
    if (request.progress) request.progress(share_of_segments + (1 - share_of_segments) * of_communication, what);
  };
  const double groups = std::max(1.0, std::floor(std::log2(launch_plan.ranks)));
  measure_segments(request, vocab, launch_plan, calibration);
  // The first communicator of this process loads the library's kernels, so this comes before everything else that has
  // communicators.
  for (int ranks = 2; request.communication && gpus && ranks <= launch_plan.ranks; ranks *= 2) {
    request.note(fmt::format("memory of communicators among {} ranks", ranks));
    measure_communicators(request, launch_of(request, ranks), calibration);
  }
  for (int ranks = 2; request.communication && ranks <= launch_plan.ranks; ranks *= 2) {
    reached((std::log2(ranks) - 1) / groups / 2, fmt::format("collectives among {} ranks", ranks));
    measure_collectives(request, ranks, gpus, calibration);
  }
  if (request.communication && launch_plan.ranks > 1) {
    reached(0.5, "compute beside collectives");
    measure_slowdown(request, vocab, launch_plan, calibration);
    reached(0.7, "messages, of one pair for each kind of link");
    measure_messages(request, launch_plan, calibration);
  }
  return calibration;
}

}  // namespace plait::bench
