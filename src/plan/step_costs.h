// The costs of the instructions of a job's programs on a machine: the bridge from plans (parallel/rank_plan.h) to placement and
// simulation.
#pragma once

#include <vector>

#include "parallel/program/exchanges.h"
#include "parallel/rank_plan.h"
#include "plan/communication_cost.h"
#include "plan/placement/traffic.h"
#include "plan/segment_cost.h"

namespace plait::plan {

// Bytes that a rank's update moves: it reads gradients, master weights and both moments, and writes the latter three and the
// compute weights.
double update_bytes(const parallel::RankPlan& plan);

class StepCosts {
 public:
  // `stages`: the plan of one rank of each pipeline coordinate, in order; all ranks with the same coordinate cost the same.
  // Keeps a copy of the machine and no reference to the plans.
  StepCosts(const Machine& machine, const std::vector<parallel::RankPlan>& stages);
  StepCosts(const StepCosts&) = delete;
  StepCosts& operator=(const StepCosts&) = delete;

  const Machine& machine() const { return machine_; }
  const Traffic& traffic() const { return traffic_; }

  // The work of instruction `index` of a rank with this pipeline coordinate. `group_way`: the narrowest way of its group's
  // ring, nullptr in a group of one; `way`: a message's way to its peer, else nullptr.
  Work work(int pipeline, int index, const topology::Way* group_way, const topology::Way* way) const;

  bool extrapolated() const { return extrapolated_; }  // some pass was not measured although others were

 private:
  // One collective of an exchange, among several ranks.
  struct Exchanged {
    TensorCollective collective;
    int ranks = 1;
    bool by_links = false;
  };
  // One instruction, before the ranks are placed.
  struct UnplacedCost {
    Work work;
    PassCost pass;                      // of a segment's computation or an exchange
    std::vector<Exchanged> exchanged;   // the collectives of an exchange, kept at its first one
    double kernels = 0;                 // seconds for which the kernels of a collective beside compute hold the device
    std::size_t longest_by_kernel = 0;  // of an exchange by links: the most bytes that a kernel pushes
    bool gathers_into_free = false;     // gathered parts arrive at their destination, without a further copy
  };
  Work work_of(const parallel::RankPlan& plan, const parallel::Instruction& instruction) const;
  double accumulation(const parallel::RankPlan& plan, const parallel::Instruction& instruction) const;
  double reduction_kernels(const parallel::RankPlan& plan, const parallel::Instruction& instruction) const;
  Work collective_of_group(const parallel::RankPlan& plan, const parallel::Instruction& instruction) const;
  UnplacedCost exchange_cost(const std::vector<UnplacedCost>& items, const parallel::RankPlan& plan,
                             const parallel::Exchange& exchange) const;
  void add_traffic(int pipeline, const parallel::RankPlan& plan);

  Machine machine_;
  CommunicationCosts communication_;
  parallel::Layout layout_;
  std::vector<std::vector<UnplacedCost>> items_;  // by pipeline rank and instruction
  Traffic traffic_;
  bool extrapolated_ = false;
};

}  // namespace plait::plan
