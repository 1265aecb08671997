#include "config/pass_replay.h"

#include <algorithm>

#include "core/error.h"

namespace plait {
namespace {

std::array<std::optional<PassNeed>, 2> needs_of(const StagePass& pass, int stages) {
  const PassNeed output{PassResult::output, pass.stage}, previous{PassResult::output, pass.stage - 1};
  const PassNeed gradient{PassResult::input_gradient, pass.stage}, next{PassResult::input_gradient, pass.stage + 1};
  if (pass.kind == PassKind::backward_weight) return {gradient};
  if (pass.kind != PassKind::forward) return {output, next.stage < stages ? std::optional(next) : std::nullopt};
  return {pass.stage > 0 ? std::optional(previous) : std::nullopt};
}

}  // namespace

PassEnds::PassEnds(std::vector<int> rank_of_stage, int micro_batches)
    : rank_of_stage_(std::move(rank_of_stage)),
      micro_batches_(micro_batches),
      ends_(rank_of_stage_.size() * static_cast<std::size_t>(micro_batches)) {}

std::size_t PassEnds::index(int stage, int micro_batch) const {
  return static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batches_) + static_cast<std::size_t>(micro_batch);
}

const std::optional<double>& PassEnds::end(const PassNeed& need, int micro_batch) const {
  return ends_[index(need.stage, micro_batch)][static_cast<std::size_t>(need.result)];
}

std::optional<PassNeed> PassEnds::missing(const StagePass& pass) const {
  for (const auto& need : needs_of(pass, static_cast<int>(rank_of_stage_.size()))) {
    if (need && !end(*need, pass.micro_batch)) return need;
  }
  return std::nullopt;
}

std::optional<double> PassEnds::ready(const StagePass& pass, double send) const {
  double ready = 0;
  for (const auto& need : needs_of(pass, static_cast<int>(rank_of_stage_.size()))) {
    if (!need) continue;
    const std::optional<double>& computed = end(*need, pass.micro_batch);
    if (!computed) return std::nullopt;
    ready = std::max(ready, *computed + (rank_of(need->stage) == rank_of(pass.stage) ? 0 : send));
  }
  return ready;
}

int PassEnds::finish(const StagePass& pass, double end) {
  Ends& ends = ends_[index(pass.stage, pass.micro_batch)];
  const auto set = [&](PassResult result) {
    std::optional<double>& known = ends[static_cast<std::size_t>(result)];
    require(!known, "a schedule has a pass twice");
    known = end;
  };
  if (pass.kind == PassKind::forward) set(PassResult::output);
  if (yields_gradient(pass.kind)) set(PassResult::input_gradient);
  if (adds_to_weights(pass.kind)) set(PassResult::weight_gradient);
  if (pass.kind == PassKind::backward_weight) return -1;
  const int reader = pass.stage + (pass.kind == PassKind::forward ? 1 : -1);
  const bool is_here =
      reader < 0 || reader == static_cast<int>(rank_of_stage_.size()) || rank_of(reader) == rank_of(pass.stage);
  return is_here ? -1 : rank_of(reader);
}

bool PassEnds::complete() const {
  return std::ranges::all_of(ends_, [](const Ends& ends) { return ends[0] && ends[1] && ends[2]; });
}

}  // namespace plait
