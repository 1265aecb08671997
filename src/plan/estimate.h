// A quick estimate of a candidate without programs: its compute, its collectives and its schedule's bubble. It sorts thousands
// of candidates; the simulator and the memory plan decide among the few that are left.
#pragma once

#include <map>
#include <utility>

#include "core/device.h"
#include "parallel/rank_plan.h"
#include "plan/candidate.h"
#include "plan/communication_cost.h"
#include "plan/pass_seconds.h"

namespace plait::plan {

struct Estimate {
  double seconds = 0;
  double bytes = 0;  // of the most loaded rank: parameters, gradients, optimizer state, activations by micro-batches in flight
  // Transformer blocks of each stage, balanced so that all ranks take about the same seconds. A balance by FLOPs differs most
  // at the head. Empty without a pipeline, if the configuration gives the stages, and if it leaves nothing open.
  std::vector<double> stages;
};

// How a pipeline's stages are cut if the configuration does not give them. `by_rule` is what a run does: by seconds if the
// configuration leaves something to the planner, else by FLOPs, so that a complete configuration means the same on every
// machine.
enum class StageCut { by_rule, by_seconds };

class Estimator {
 public:
  // Keeps references to its arguments.
  Estimator(const Config& config, const parallel::Decision& decision, std::int64_t vocab, DeviceKind kind,
            const Machine& machine, StageCut cut = StageCut::by_rule);

  // ConfigError if the candidate cannot be planned.
  Estimate estimate(const Candidate& candidate, const AxisSpeeds& speeds);

 private:
  std::vector<parallel::SegmentRange> balanced_stages(const parallel::JobOutline& job, const PassSeconds& passes,
                                                      const PassSeconds& beside_head);
  // Parameter elements on one tensor rank.
  struct Elements {
    SegmentParts of_kind{};   // of a segment alone
    double of_both_ends = 0;  // elements that embedding and head share, which a rank with both holds once: a tied table
  };
  const Elements& parameters(const model::SegmentSizes& sizes);
  SegmentParts scratch(const model::SegmentSizes& sizes);  // bytes

  const Config& config_;
  const parallel::Decision& decision_;
  const std::int64_t vocab_;
  const DeviceKind kind_;
  const Machine& machine_;
  const bool cuts_stages_;
  std::map<std::int64_t, Elements> parameters_;  // by tensor
  parallel::StageSplits splits_;
};

}  // namespace plait::plan
