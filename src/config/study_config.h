// The section `study` of a configuration (config/config.h says how its keys are declared).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/auto.h"
#include "core/choices.h"
#include "core/limits.h"

namespace plait {

// One value of an axis of a study.
struct AxisValue {
  std::string yaml;  // as `--set` takes it: "2", "\"pipeline=2 tensor=2\"", "{file: zb.csv}"
  std::string text;  // for people: without the quotes
  friend bool operator==(const AxisValue&, const AxisValue&) = default;
};

struct AxisConfig {
  std::string key;  // of a configuration, or "layout"; of isoflop also "flops" and "parameters"
  std::vector<AxisValue> values;
  friend bool operator==(const AxisConfig&, const AxisConfig&) = default;
};

// The points of a study that are left out before they run.
struct PruneConfig {
  bool fits = true;
  double slower_than_best = 0;  // 0: off

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("fits", &PruneConfig::fits, k.yes_or_no(),
          "Leave out points whose memory plan is more than a device has. `false`: run them, to see them fail.");
    k.key("slower_than_best", &PruneConfig::slower_than_best, k.zero_or_at_least_one(),
          "Leave out points that the planner predicts to be this many times slower than the best of as many ranks. 0: off.");
  }
};

struct MeasureConfig {
  std::int64_t steps = 30, warmup = 5;
  std::string rounds = "6..10";
  std::string until = "1%";
  RoundOrder order = RoundOrder::shuffled;

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("steps", &MeasureConfig::steps, k.whole(1, limits::measured_steps), "Steps measured in a round.");
    k.key("warmup", &MeasureConfig::warmup, k.whole(1, limits::measured_steps), "Steps before those, not measured.");
    k.key("rounds", &MeasureConfig::rounds, k.round_range(),
          "Rounds of each point: the least and the most, `6..10`, or one number. A round is a process tree of its own. An "
          "interval of 95 % takes six.");
    k.key("until", &MeasureConfig::until, k.bound(),
          "A point needs no further round once the 95 % interval of its median step is narrower than this, for which there "
          "have to be six, and the least number of rounds is done. `none`: always the most.");
    k.choice("order", &MeasureConfig::order,
             "Of the points in a round. `shuffled` by `run.seed`, so that a machine that warms up or throttles does not favour "
             "any; `listed`: as the axes list them.");
  }
};

struct BudgetConfig {
  Auto<double> minutes;  // auto: no limit
  double point_timeout_s = 300;

  template <typename Keys>
  static void declare(Keys& k) {
    k.auto_key("minutes", &BudgetConfig::minutes, k.real(1e-6, 1e6, "almost two years"),
               "No round begins that would probably end later than this after the command began. `auto`: no limit.");
    k.key("point_timeout_s", &BudgetConfig::point_timeout_s,
          k.real(0.01, 1e6, "timers count milliseconds; the most is 12 days"),
          "A round that has not ended after this many seconds is ended, and with it its point.");
  }
};

struct SimulateConfig {
  std::vector<std::int64_t> gpus;
  std::string device = "auto";
  SimulatedNetwork network = SimulatedNetwork::rail;
  double network_gb_per_s = 50;

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("gpus", &SimulateConfig::gpus, k.each("a list of numbers of GPUs", 1, limits::ranks),
          "Sizes at which the points are simulated too, in place of `launch.ranks`. Empty: none.");
    k.key("device", &SimulateConfig::device, k.not_empty(),
          "The GPU (h200, a100, rtx4090, ...) or `cpu`, by its nominal figures. `auto`: what the study runs on, with this "
          "machine's "
          "calibration.");
    k.choice("network", &SimulateConfig::network,
             "Between hosts: one switch for the i-th NIC of every host (`rail`), or one for all (`flat`).");
    k.key("network_gb_per_s", &SimulateConfig::network_gb_per_s,
          k.real(1e-3, 1e6, "ten thousand times the fastest NICs sold (50 to 100 GB/s)"),
          "GB/s of the NIC that each GPU has, one direction.");
  }
};

// The layout of a study on a cluster (`plait study --slurm`).
struct SlurmConfig {
  Auto<std::int64_t> ranks_per_node;

  template <typename Keys>
  static void declare(Keys& k) {
    k.auto_key(
        "ranks_per_node", &SlurmConfig::ranks_per_node, k.whole(1, limits::host_ranks),
        "The most ranks of a point on one node, each with a GPU of its own unless `launch.device` is `cpu`. `auto`: eight, "
        "or fewer where no point has as many; on CPUs all.");
  }
};

// The bounds of `plait study`: if results are worse, its exit status is 1.
struct StudyBoundsConfig {
  std::string efficiency = "none", regression = "none", prediction_error = "none", regret = "none";

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("efficiency", &StudyBoundsConfig::efficiency, k.bound(),
          "The least that the best layout of the most ranks may have of the baseline's FLOP/s per device.");
    k.key("regression", &StudyBoundsConfig::regression, k.bound(),
          "For `plait study compare`: by how much a point's step must have grown to count as slower.");
    k.key("prediction_error", &StudyBoundsConfig::prediction_error, k.bound(),
          "The most that the planner's predicted step may be off, in the median of the points.");
    k.key("regret", &StudyBoundsConfig::regret, k.bound(),
          "The most by which the planner's choice may be slower than the best layout measured, for each number of ranks.");
  }
};

// A scaling study (docs/studies.md).
struct StudyConfig {
  Scaling scaling = Scaling::strong;
  std::vector<AxisConfig> axes;
  std::vector<std::string> skip;
  PruneConfig prune;
  MeasureConfig measure;
  BudgetConfig budget;
  SimulateConfig simulate;
  SlurmConfig slurm;
  StudyBoundsConfig bounds;

  template <typename Keys>
  static void declare(Keys& k) {
    k.choice(
        "scaling", &StudyConfig::scaling,
        "What a number of ranks changes. `strong`: nothing, `train.global_batch` is the whole batch. `weak`: the batch, "
        "`train.global_batch` is for each rank. `model`: the model, `model.layers` is for each rank; the batch stays. "
        "`isoflop`: "
        "nothing; each point is a training run, whose shape and steps follow from the axes `parameters` and `flops`, and what "
        "is kept is its validation loss (docs/scaling-laws.md).");
    k.key("axes", &StudyConfig::axes, k.axes(),
          "What the points differ in: every combination of these values is a point. `{launch.ranks: [1, 2], layout: [auto, "
          "\"pipeline=2 schedule=zb-v\"], train.micro_batch: [auto, 4]}`. Of `layout`: `auto` (the planner's choice), `all` "
          "(every mesh, schedule and ZeRO stage of as many ranks), or keys of `parallel` as in `verify.layouts`, except that "
          "`data`, where it is not given, is what the ranks leave.");
    k.key("skip", &StudyConfig::skip, k.any("a list of expressions"),
          "Points for which one of these holds are left out: `\"tensor > 2 and schedule != 1f1b\"` (docs/studies.md).");
    k.section("prune", &StudyConfig::prune,
              "Which points are left out before they run. They stay in the report, with the reason.");
    k.section("measure", &StudyConfig::measure, "How often and how long.");
    k.section("budget", &StudyConfig::budget, "What a study may take.");
    k.section("simulate", &StudyConfig::simulate, "The same points on machines that are not there.");
    k.section("slurm", &StudyConfig::slurm, "For `plait study --slurm`: the nodes of the cluster.");
    k.section("bounds", &StudyConfig::bounds, "What the results must hold; the exit status is 1 where they do not.");
  }
};

}  // namespace plait
