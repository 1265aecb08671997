// A point of a study: one configuration to measure, or the reason why it is not measured; and its rounds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/names.h"
#include "parallel/ledger.h"
#include "parallel/mesh.h"
#include "train/report/measurement.h"

namespace plait::study {

// The reason why a point is not measured. Point::pruned_because has it in words.
enum class Pruning {
  rule,        // a rule of the configuration forbids it
  skip,        // an expression of study.skip holds for it
  memory,      // does not fit, by its memory plan
  prediction,  // the planner says that it is study.prune.slower_than_best times slower than the best of as many ranks
  duplicate,   // another point resolves to the same configuration: Point::same_as
};

// The state of a point. `interrupted`: not, or not completely, measured yet; existing rounds count, and --resume continues.
enum class PointState { pruned, ok, out_of_memory, failed, timed_out, interrupted, over_budget };

// Values by key, as in study.axes and in their order: {"launch.ranks", "2"}, {"layout", "pipeline=2 schedule=zb-v"}. An axis
// `layout: all` is listed layout by layout.
using Coordinates = std::vector<std::pair<std::string, std::string>>;

// The planner's prediction for a point before it runs.
struct Prediction {
  double step_ms = 0;
  double bubble_fraction = 0;      // mean over ranks
  parallel::Ledger ledger;         // mean over ranks
  std::vector<double> peak_bytes;  // by pipeline rank, including memory for libraries
  double limit_bytes = 0;          // that a plan may give a rank
  std::string from;                // "measured on NVIDIA H200", "nominal figures of H200"
};

// Facts about a point with a resolved configuration.
struct PointFacts {
  int ranks = 1;
  parallel::Layout layout;
  std::string schedule;  // "1f1b", or a file's path
  std::int64_t virtual_stages = 1, zero = 0;
  std::string recompute;
  std::int64_t micro_batch = 1, micro_batches = 1;  // sequences; number per data-parallel rank and step
  std::int64_t global_batch = 1, sequence_length = 1;
  std::int64_t parameters = 0;          // of the whole model, including the head's padding
  std::int64_t matrix_parameters = 0;   // parameters that multiply every token: the N of scaling laws (study/isoflop_grid.h)
  double model_flops_per_token = 0;     // forward and backward (model/model_flops.h)
  double hardware_flops_per_token = 0;  // including recomputation
  std::int64_t tokens_per_step() const { return global_batch * sequence_length; }
};

struct Point {
  int index = 0;   // its place in points.jsonl, from 0
  std::string id;  // 32 hexadecimal digits, see docs/studies.md; "" if nothing could be resolved
  Coordinates coordinates;
  std::optional<Pruning> pruning;
  std::string pruned_because;            // "" unless pruned
  std::optional<int> same_as;            // for Pruning::duplicate
  int asked_ranks = 0;                   // 0 if the axes give no number of ranks
  std::string config;                    // YAML, every key, nothing left open; "" if nothing could be resolved
  std::optional<PointFacts> facts;       // set with `config`
  std::optional<Prediction> prediction;  // set with `config`, if the planner could predict
  bool has(const std::string& key, const std::string& value) const;  // among the coordinates
  // The coordinates that the planner does not choose: without ranks, layout, micro-batch and keys of `parallel`. The planner
  // can choose between points with the same job and number of ranks.
  Coordinates job() const;
  std::string label() const;  // "ranks=2 layout=\"pipeline=2 schedule=zb-v\"": coordinates without sections
};

// The end of a round. All outcomes but `ok` end their point.
enum class Outcome { ok, out_of_memory, failed, timed_out };

using train::DeviceConditions, train::Measurement, train::RankMemory;

// One process tree that measured a point once, with its outcome.
struct Round {
  int point = 0;
  int round = 1;  // of the study: rounds with the same number ran one after the other, in shuffled order
  Outcome outcome = Outcome::ok;
  std::string started;  // "2026-11-23T03:05:17Z"
  double seconds = 0;   // of the process tree, including start-up
  std::string host;
  std::string message = {};                  // the first line of the error; "" without one
  std::string log;                           // the child's standard error, relative to the study's folder
  std::optional<Measurement> measured = {};  // set if ok
};

}  // namespace plait::study

namespace plait {
template <>
inline constexpr auto names<study::Pruning> = std::to_array<Name<study::Pruning>>({{study::Pruning::rule, "rule"},
                                                                                   {study::Pruning::skip, "skip"},
                                                                                   {study::Pruning::memory, "memory"},
                                                                                   {study::Pruning::prediction, "prediction"},
                                                                                   {study::Pruning::duplicate, "duplicate"}});
template <>
inline constexpr auto names<study::PointState> =
    std::to_array<Name<study::PointState>>({{study::PointState::pruned, "pruned"},
                                            {study::PointState::ok, "ok"},
                                            {study::PointState::out_of_memory, "out of memory"},
                                            {study::PointState::failed, "failed"},
                                            {study::PointState::timed_out, "timed out"},
                                            {study::PointState::interrupted, "interrupted"},
                                            {study::PointState::over_budget, "over budget"}});
template <>
inline constexpr auto names<study::Outcome> =
    std::to_array<Name<study::Outcome>>({{study::Outcome::ok, "ok"},
                                         {study::Outcome::out_of_memory, "out of memory"},
                                         {study::Outcome::failed, "failed"},
                                         {study::Outcome::timed_out, "timed out"}});
}  // namespace plait
