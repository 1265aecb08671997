// The data flow between the passes of a pipeline, and a replay of lists whose steps wait for one another.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "config/schedule_file.h"

namespace plait {

// A result of one stage and micro-batch.
enum class PassResult { output, input_gradient, weight_gradient };

struct PassNeed {
  PassResult result = PassResult::output;
  int stage = 0;
};

// Results computed so far, and when. A forward needs the previous stage's output; a backward, or its input part, needs the
// stage's own output and the gradient from the next stage; a weight part needs its input part.
class PassEnds {
 public:
  PassEnds(std::vector<int> rank_of_stage, int micro_batches);

  // The first result that `pass` needs and that is still to be computed.
  std::optional<PassNeed> missing(const StagePass& pass) const;

  // When everything that `pass` needs is there, `send` later if it comes from another rank; nullopt while a result is missing.
  std::optional<double> ready(const StagePass& pass, double send = 0) const;

  // Adds the results of `pass`. InternalError if one was computed before. Returns the other rank that may go on with them; -1:
  // none.
  int finish(const StagePass& pass, double end);

  // True once every stage has computed every pass of every micro-batch.
  bool complete() const;

 private:
  using Ends = std::array<std::optional<double>, 3>;  // by PassResult
  std::size_t index(int stage, int micro_batch) const;
  const std::optional<double>& end(const PassNeed& need, int micro_batch) const;
  int rank_of(int stage) const { return rank_of_stage_[static_cast<std::size_t>(stage)]; }

  std::vector<int> rank_of_stage_;
  int micro_batches_ = 0;
  std::vector<Ends> ends_;  // [stage][micro-batch]
};

struct ReplayedList {
  std::size_t steps = 0, done = 0;
};

// Replays lists side by side, each in its order, until no list's next step can run.
//   can_run(list, step)       true: now and from now on
//   run(list, step, release)  runs the step; calls release(other) for every other list whose next step it may make able to run
// No step may depend on the order in which lists are looked at.
template <typename CanRun, typename Run>
void replay(std::vector<ReplayedList>& lists, const CanRun& can_run, const Run& run) {
  std::vector<std::size_t> ready;
  const auto release = [&](std::size_t list) { ready.push_back(list); };
  for (std::size_t list = lists.size(); list-- > 0;) release(list);
  while (!ready.empty()) {
    const std::size_t list = ready.back();
    ready.pop_back();
    for (std::size_t& done = lists[list].done; done < lists[list].steps && can_run(list, done); ++done)
      run(list, done, release);
  }
}

}  // namespace plait
