// A first judgement of a candidate, without programs: what it would take if nothing but its compute, its collectives and its
// schedule's bubble counted. For sorting thousands of candidates; the simulator and the memory plan decide about the few that
// are left.
#pragma once

#include <map>
#include <utility>

#include "core/device.h"
#include "parallel/rank_plan.h"
#include "plan/block_cost.h"
#include "plan/candidate.h"
#include "plan/communication_cost.h"

namespace plait::plan {

// The fastest that each axis can have; 0: the axis is free.
struct AxisSpeeds {
  RingSpeed tensor, pipeline, data;
};

struct Estimate {
  double seconds = 0;
  double bytes = 0;  // of the most loaded rank: parameters, gradients, optimizer state, activations by micro-batches in flight
  // Transformer blocks of each stage, so that ranks take equally long: by seconds, which differ from FLOPs most at the head.
  // Empty without a pipeline, where the configuration says it, and where that leaves nothing open: it then runs as it is.
  std::vector<std::int64_t> stages;
};

class Estimator {
 public:
  // Keeps references to all of them.
  Estimator(const Config& config, std::int64_t vocab, DeviceKind kind, const Machine& machine);

  // ConfigError where the candidate cannot be planned.
  Estimate estimate(const Candidate& candidate, const AxisSpeeds& speeds);

 private:
  // Of embedding, transformer block and head.
  struct Parts {
    double embedding = 0, block = 0, head = 0;
  };
  struct PassSeconds {
    Parts forward, backward_input, backward_weight;
  };
  PassSeconds pass_seconds(const model::BlockSizes& sizes, const RingSpeed& tensor);
  std::vector<parallel::BlockRange> balanced_stages(const parallel::JobOutline& job, const PassSeconds& passes);
  Parts parameters(const model::BlockSizes& sizes);   // elements on one tensor rank
  Parts activations(const model::BlockSizes& sizes);  // saved bytes of one micro-batch
  Parts scratch(const model::BlockSizes& sizes);      // bytes

  const Config& config_;
  const std::int64_t vocab_;
  const DeviceKind kind_;
  const Machine& machine_;
  const bool cuts_stages_;
  std::map<std::int64_t, Parts> parameters_;  // by tensor
  parallel::StageSplits splits_;
};

}  // namespace plait::plan
