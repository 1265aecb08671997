#include "parallel/schedule/pass_ends.h"

#include <algorithm>

#include "core/error.h"

namespace plait::parallel {

PassEnds::PassEnds(const Schedule& schedule) : schedule_(schedule), ends_(index(schedule.stages.count(), 0)) {}

int PassEnds::stage(int rank, const Pass& pass) const {
  require(pass.chunk >= 0 && pass.chunk < schedule_.stages.chunks(rank),
          "a schedule has a pass of a chunk that does not exist");
  require(pass.micro_batch >= 0 && pass.micro_batch < schedule_.micro_batches, "a schedule has a pass of no micro-batch of it");
  return schedule_.stages.stage(rank, pass.chunk);
}

std::size_t PassEnds::index(int stage, int micro_batch) const {
  return static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule_.micro_batches) +
         static_cast<std::size_t>(micro_batch);
}

std::optional<double> PassEnds::ready(int rank, const Pass& pass, double send) const {
  const int at = stage(rank, pass);
  const auto from = [&](int neighbour, std::optional<double> Ends::* what) {
    std::optional<double> end = ends_[index(neighbour, pass.micro_batch)].*what;
    if (end && schedule_.stages.rank_of(neighbour) != rank) *end += send;
    return end;
  };
  if (pass.kind == PassKind::backward_weight) return from(at, &Ends::input_gradient);
  if (pass.kind == PassKind::forward) return at == 0 ? 0.0 : from(at - 1, &Ends::output);
  const std::optional<double> output = from(at, &Ends::output);
  if (at + 1 == schedule_.stages.count()) return output;
  const std::optional<double> gradient = from(at + 1, &Ends::input_gradient);
  return output && gradient ? std::max(output, gradient) : std::nullopt;
}

void PassEnds::finish(int rank, const Pass& pass, double end) {
  Ends& ends = ends_[index(stage(rank, pass), pass.micro_batch)];
  const auto set = [&](std::optional<double>& what) {
    require(!what, "a schedule has a pass twice");
    what = end;
  };
  if (pass.kind == PassKind::forward) set(ends.output);
  if (yields_gradient(pass)) set(ends.input_gradient);
  if (adds_to_weights(pass)) set(ends.weight_gradient);
}

bool PassEnds::complete() const {
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const Ends& e) { return e.output && e.input_gradient && e.weight_gradient; });
}

}  // namespace plait::parallel
