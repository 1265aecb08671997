// What has been computed, and when: the data flow between the passes of a schedule.
#pragma once

#include <optional>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// A forward needs the previous stage's output; a backward, or its input part, needs the stage's own forward and the gradient
// from the next stage; a weight part needs its input part. The schedule must outlive this.
class PassEnds {
 public:
  explicit PassEnds(const Schedule& schedule);

  // When everything that `pass` of `rank` needs is there; nullopt while some of it is still to be computed.
  std::optional<double> ready(int rank, const Pass& pass, double send = 0) const;

  // InternalError if the same was computed before.
  void finish(int rank, const Pass& pass, double end);

  // True once every stage has computed every pass of every micro-batch.
  bool complete() const;

 private:
  struct Ends {
    std::optional<double> output, input_gradient, weight_gradient;
  };
  int stage(int rank, const Pass& pass) const;  // InternalError unless the schedule has it
  std::size_t index(int stage, int micro_batch) const;

  const Schedule& schedule_;
  std::vector<Ends> ends_;  // [stage][micro-batch]
};

}  // namespace plait::parallel
