// A study's folder, read. It is the whole interface between the runner, which writes it, and reports, comparisons and fits.
//
//   config.yaml        the study's configuration, resolved, with schedule.csv as in any run (checkpoint/run_directory.h)
//   environment.json   its environment (train/report/environment.h), and the topology
//   points.jsonl       one line per point, measured or pruned; written in one piece before anything is measured
//   results.jsonl      append-only, one line per round, each on the disk before the next round starts; and one line for each
//                      time that the study stopped
//   tasks/NUMBER/      for a study under Slurm (slurm_study.h): the results.jsonl and owner.lock of the task that measures the
//                      round of this number, and of no other
//   simulated.jsonl    one line per simulated point, written in one piece
//   points/NUMBER/     a point's config.yaml, and the log of each of its rounds (round-1.log)
//   owner.lock         held by the measuring process (checkpoint/run_lock.h)
//
// docs/studies.md has every key of these files. The last line of a results.jsonl may be half-written after a crash, and then
// does not count. If a round is listed twice, which only a file system without locks allows, the first counts. Any other
// deviation is a ConfigError naming file and line. No length in a file is trusted: files, lines and lists have limits, far
// above the needs of a study of 100,000 rounds.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/statistics.h"
#include "study/point.h"
#include "topology/graph.h"
#include "train/report/environment.h"

namespace plait::study {

// The reason why a study stopped measuring.
enum class StopReason { complete, interrupted, over_budget };

struct Stop {
  StopReason reason = StopReason::complete;
  std::string time;  // "2026-11-23T03:05:17Z"
};

// A point on machines that are not available.
struct SimulatedPoint {
  Coordinates coordinates;  // launch.ranks is the number of GPUs
  int gpus = 0;
  std::string device, network;  // "h200", "rail"
  std::string refused;          // the reason for missing results: a rule, or memory; "" otherwise
  std::optional<PointFacts> facts;
  std::optional<Prediction> prediction;
  // Measured / predicted for such predictions: simulate_points() defines the source; nullopt if too little was measured.
  std::optional<double> least_ratio, most_ratio;
};

struct StudyData {
  std::filesystem::path folder;
  Config config;  // including its section `study`
  train::Environment environment;
  std::optional<topology::Graph> topology;  // for a machine with GPUs
  std::vector<Point> points;                // by index
  std::vector<Round> rounds;                // by number, then in the order in which they ran
  std::vector<Stop> stops;                  // in the order of their times
  std::vector<SimulatedPoint> simulated;    // empty unless asked for
  std::optional<int> baseline;              // the point that efficiencies are relative to

  // The rounds of one point, in order.
  std::vector<const Round*> rounds_of(int point) const;
  // Those of one point that are `ok`.
  std::vector<const Round*> measured_rounds_of(int point) const;
  PointState state_of(int point) const;
  // The round that ended the point, if its state is none of pruned, ok, interrupted and over_budget; else null.
  const Round* failure_of(int point) const;
};

// ConfigError if `folder` is not a study's, or in the cases above.
StudyData read_study(const std::filesystem::path& folder);

// ConfigError if the folder holds no points.
void require_points(const std::filesystem::path& folder);

// The folder of the task that measures a round.
std::filesystem::path task_folder(const std::filesystem::path& study, int round);

// What a study still has to measure, as pure functions of its data.

// The median step time of a point, one value per round: the medians of its rounds' steps.
std::vector<double> round_medians(const std::vector<const Round*>& measured);

// The number of values that a 95 % interval by order statistics needs (core/statistics.h).
inline constexpr int least_rounds_for_interval = 6;

// The interval of a point's step time, by the order statistics of its rounds' medians; with too few rounds for 95 % (five or
// fewer) it spans all of them.
Interval step_interval(const std::vector<const Round*>& measured);

// True if a point needs no further round: it has the maximum of study.measure.rounds, or the minimum, at least six, and an
// interval that is as narrow as study.measure.until.
bool is_settled(const MeasureConfig& measure, const std::vector<const Round*>& measured);

// The point that efficiencies are relative to: among the points that can be measured and have not failed, the one with the
// fewest ranks; among these the one predicted fastest per token; then the first. nullopt if there is none.
std::optional<int> baseline_of(const StudyData& data);

}  // namespace plait::study

namespace plait {
template <>
inline constexpr auto names<study::StopReason> =
    std::to_array<Name<study::StopReason>>({{study::StopReason::complete, "complete"},
                                            {study::StopReason::interrupted, "interrupted"},
                                            {study::StopReason::over_budget, "over budget"}});
}  // namespace plait
