// Whole studies made by hand: every state of a point, ledgers, memory, simulated points.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>

#include "study/study_data.h"
#include "study_files.h"

namespace plait::study::test {

struct StudyShape {
  int points = 1;
  int rounds = 6;
  double noise = 0.003;       // relative, of a round
  std::uint64_t seed = 1;     // of the noise
  double slower_buckets = 0;  // of a step: a planted slowdown, in gradient buckets, of every point with more than one rank
  bool predicted = true;
};

// A ledger whose accounts are shares of the step: 70 % compute, 12 % gradient buckets, 8 % bubble, the rest other.
inline parallel::Ledger ledger(double step_ms, double added_buckets_ms = 0) {
  parallel::Ledger ledger;
  ledger.step_ms = step_ms + added_buckets_ms;
  ledger.compute_ms = 0.7 * step_ms, ledger.bubble_ms = 0.08 * step_ms, ledger.other_ms = 0.1 * step_ms;
  auto& buckets = ledger.of(parallel::CommunicationKind::gradient_buckets);
  buckets = {10, 0.3 * step_ms, 0.12 * step_ms + added_buckets_ms};
  return ledger;
}

inline Measurement measurement(double step_ms, double added_buckets_ms = 0) {
  const double step = step_ms + added_buckets_ms;
  return {.step_ms = {0.999 * step, step, 1.001 * step},
          .ledgers = {ledger(step_ms, added_buckets_ms)},
          .memory = {{3e8, 4e8, 0}},
          .devices = {},
          .peak_flops = 1e9,
          .load = {},
          .tokens_per_step = 128,
          .loss = {},
          .validation_loss = {},
          .tokens = {}};
}

// Points of 1, 2, 4, ... ranks in turn, all measured: point n takes (10 + n) ms on one rank.
inline StudyData study(const StudyShape& shape = {}, const std::string& more = "") {
  StudyData data;
  data.folder = "runs/s";
  data.config = study_config("/nowhere", fmt::format("rounds: {}, until: none", shape.rounds));
  data.environment.plait = {"0.1.0", "0123456789ab"};
  data.environment.host = "node1", data.environment.cpu = "a processor", data.environment.processors = 8;
  data.environment.memory_bytes = 64e9;
  std::mt19937_64 random(shape.seed);
  std::normal_distribution<double> noise(1, shape.noise);
  for (int n = 0; n < shape.points; ++n) {
    const int ranks = 1 << (n % 3);
    Point made = point(data.config, n, ranks, (10.0 + n) / ranks * 1.02);
    made.id = fmt::format("{:032x}", n);
    made.coordinates = {{"launch.ranks", std::to_string(ranks)},
                        {"layout", fmt::format("zero={}{}", n, more)},
                        {"train.micro_batch", std::to_string(1 << (n % 4))}};
    // Another seed, so that no two points have one configuration.
    made.config = fmt::format("{}", to_yaml([&] {
                                Config config = data.config;
                                config.run.seed = static_cast<std::uint64_t>(n);
                                return config;
                              }()));
    if (!shape.predicted) made.prediction.reset();
    data.points.push_back(std::move(made));
  }
  for (int number = 1; number <= shape.rounds; ++number) {
    for (int n = 0; n < shape.points; ++n) {
      const int ranks = data.points[static_cast<std::size_t>(n)].facts->ranks;
      const double step = (10.0 + n) / ranks * noise(random);
      Round made = round(n, number, {1});
      made.measured = measurement(step, ranks > 1 ? shape.slower_buckets * step : 0);
      data.rounds.push_back(std::move(made));
    }
  }
  data.stops = {{StopReason::complete, "2026-11-23T03:09:17Z"}};
  data.baseline = baseline_of(data);
  return data;
}

// Adds a point in each state that is not ok, and one of every reason to prune.
inline void add_every_state(StudyData& data) {
  const auto add = [&](int ranks) -> Point& {
    const int index = static_cast<int>(data.points.size());
    data.points.push_back(point(data.config, index % 10, ranks, 4));
    Point& made = data.points.back();
    made.index = index;
    made.coordinates = {
        {"launch.ranks", std::to_string(ranks)}, {"layout", fmt::format("data={}", index)}, {"train.micro_batch", "8"}};
    return made;
  };
  const auto prune = [&](Pruning why, const std::string& because) -> Point& {
    Point& made = add(2);
    made.pruning = why, made.pruned_because = because;
    return made;
  };
  prune(Pruning::rule, "train.global_batch = 8: must be a multiple | of 3");
  data.points.back().facts.reset(), data.points.back().prediction.reset(), data.points.back().config = "";
  prune(Pruning::skip, "tensor > 2");
  Point& large = prune(Pruning::memory, "activations 2.1 GiB; 1.1 GiB too much");
  large.prediction->peak_bytes = {2.1e9}, large.prediction->limit_bytes = 1e9, large.prediction->step_ms = 0.5;
  prune(Pruning::prediction, "20.1 times slower than the best");
  prune(Pruning::duplicate, "the same configuration as point 0").same_as = 0;
  for (const Outcome outcome : {Outcome::out_of_memory, Outcome::failed, Outcome::timed_out}) {
    const int index = add(2).index;
    data.rounds.push_back(failed(index, 1, outcome, "it said <b>why</b>: " + to_string(outcome)));
  }
  const int interrupted = add(2).index;
  data.rounds.push_back(round(interrupted, 1, {9}));
  data.baseline = baseline_of(data);
}

inline void add_simulated(StudyData& data) {
  for (const int gpus : {16, 512, 16'384}) {
    SimulatedPoint simulated{.coordinates = {{"launch.ranks", std::to_string(gpus)}, {"layout", "auto"}},
                             .gpus = gpus,
                             .device = "h200",
                             .network = "rail",
                             .refused = gpus > 1000 ? "train.global_batch = 8 is less than the data-parallel ranks" : "",
                             .facts = {},
                             .prediction = {},
                             .least_ratio = 0.96,
                             .most_ratio = 1.07};
    if (simulated.refused.empty()) {
      simulated.facts = data.points[0].facts;
      simulated.facts->ranks = gpus, simulated.facts->global_batch = gpus;
      simulated.prediction = data.points[0].prediction.value_or(Prediction());
    }
    data.simulated.push_back(std::move(simulated));
  }
}

}  // namespace plait::study::test
