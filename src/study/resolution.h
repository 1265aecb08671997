// Turns a draft into a point: the planner decides the open keys, predicts the step and the memory, and says what cannot run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "site/site_planning.h"
#include "study/expansion.h"
#include "study/point.h"

namespace plait::study {

// The result of one configuration on a machine. `config` is empty if it cannot run.
struct Resolved {
  std::optional<Config> config;  // nothing left open; GPUs are placed
  std::optional<PointFacts> facts;
  std::optional<Prediction> prediction;
  std::optional<topology::StepInterval> interval;  // of that prediction, if it is from nominal figures
  bool fits = true;
  std::string problem;  // the reason why it does not fit, or cannot run
};

// Resolves points for this machine, or for one that `wish` describes (site/site_planning.h). Not thread-safe.
class Resolver {
 public:
  // Ranks beyond `ranks_per_node` (0: no such limit) are on more than one node: started from outside (launch.mode external,
  // meeting over TCP), rank r on device r, with a network between the nodes as `wish` assumes it.
  explicit Resolver(site::PlanningWish wish, int ranks_per_node = 0);

  Resolved resolve(const Draft& draft);
  std::int64_t vocabulary(const Config& config);  // of its tokenizer, which is made once for all points that share it

 private:
  site::PlanningWish wish_;
  int ranks_per_node_;
  std::map<std::string, std::int64_t> vocabularies_;  // by the keys they depend on
};

struct Identity {
  std::string commit, machine;
};

// All points of a study, in the order of the axes: resolved by the planner, pruned by rule, skip, memory, prediction and
// duplicate as study.prune says. `notice` is told of each point as it is resolved: number, and total. `ranks_per_node`: this
// machine is one of a cluster of such nodes; points of more ranks run on as many as they need, with the network of
// study.simulate between them. 0: this machine alone.
std::vector<Point> list_points(const Config& study, const Identity& identity,
                               const std::function<void(std::size_t done, std::size_t all)>& notice = {},
                               int ranks_per_node = 0);

// The network between hosts that study.simulate describes; the number of hosts follows from the ranks.
topology::ReplicateRequest assumed_network(const SimulateConfig& simulate);

// The facts of a configuration that leaves nothing open.
PointFacts facts_of(const Config& config, const std::vector<parallel::RankPlan>& stages);

}  // namespace plait::study
