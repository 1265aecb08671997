// The model that `plait bench calibrate` times on one rank: some of the configuration's transformer blocks with embedding and
// head, or the first stage of a pipeline, which has only blocks and the embedding.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/absent_groups.h"
#include "config/config.h"
#include "runtime/interpreter.h"
#include "train/batch_sources.h"

namespace plait::bench {

struct CalibrationCase {
  int tensor = 1;
  std::int64_t micro_batch = 1;
  Recompute recompute = Recompute::none;
};

class CalibrationModel {
 public:
  // Micro-batches per step. The one in the middle is like most in training: it adds to weight gradients, and if passes are
  // braided its forward runs with a backward and its backward with a forward.
  static constexpr int micro_batches = 3, timed_micro_batch = 1;

  // Makes a warmed-up model with random data, without the other ranks of its tensor group and pipeline (bench/absent_groups.h).
  // `with_head`: with as many blocks as give the head about the share of products that it has in the whole model, or as many as
  // the device has room for. `without_head`: with a few blocks. Null if there is no room for two.
  enum class Stage { with_head, without_head };
  static std::unique_ptr<CalibrationModel> make(const Config& config, std::int64_t vocab, const CalibrationCase& c,
                                                Device device, Stage stage);

  const parallel::RankPlan& plan() const { return interpreter_.plan(); }
  bool short_of_blocks() const { return short_of_blocks_; }  // there was no room for as many blocks as in the model
  // Runs one step, instruction by instruction: milliseconds of each of plan().train. A GPU first runs other steps without a
  // pause, until it has the clock that it holds in training.
  std::vector<float> synchronize_profile();
  // False if one of these steps was not finite; after that the optimizer does nothing.
  bool is_finite() const { return finite_; }
  // Enqueues one step as in training; may block until an earlier one is done.
  void enqueue_step();
  // The latest step's result, once it has run.
  runtime::StepResult synchronize();

 private:
  void settle();
  CalibrationModel(const Config& small, parallel::RankPlan plan, Device device);

  DeviceMemory memory_, host_memory_;
  runtime::RankGroups absent_;
  runtime::Interpreter interpreter_;
  std::unique_ptr<train::TrainingBatches> batches_;
  std::int64_t updates_ = 0;
  bool short_of_blocks_ = false, finite_ = true;
};

}  // namespace plait::bench
