// The model that `plait bench calibrate` times on one rank: two transformer blocks of the configuration's, with embedding and
// head.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/absent_groups.h"
#include "core/config.h"
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
  static constexpr int layers = 2;         // so that the second has a block on either side, like most blocks of a model
  static constexpr int micro_batches = 2;  // of a step, so that the second adds to weight gradients, as most micro-batches do

  // A warmed-up model with random data for `steps` steps. A tensor rank computes without the rest of its group
  // (comm/absent_communicator.h). Null if the model does not fit the device.
  static std::unique_ptr<CalibrationModel> make(const Config& config, std::int64_t vocab, const CalibrationCase& c,
                                                Device device, std::int64_t steps);

  const parallel::RankPlan& plan() const { return interpreter_.plan(); }
  // One step, instruction by instruction: milliseconds of each of plan().train.
  std::vector<float> synchronize_profile();
  // One step as in training; may block until an earlier one is done.
  void enqueue_step();
  void synchronize();

 private:
  CalibrationModel(const Config& small, parallel::RankPlan plan, Device device, std::int64_t steps);

  DeviceMemory memory_, host_memory_;
  AbsentGroups absent_;
  runtime::Interpreter interpreter_;
  std::unique_ptr<train::TrainingBatches> batches_;
  std::int64_t updates_ = 0;
};

}  // namespace plait::bench
