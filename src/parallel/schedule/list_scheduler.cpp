#include "parallel/schedule/list_scheduler.h"

#include <algorithm>

#include "config/pass_replay.h"
#include "core/error.h"

namespace plait::parallel {
namespace {

constexpr double tolerance = 1e-9;

double figure(const std::vector<double>& list, int index) { return list[static_cast<std::size_t>(index)]; }

class ListScheduler {
 public:
  ListScheduler(const StageMap& stages, int micro_batches, const StageTimes& times, const ListRules& rules, double latest)
      : stages_(stages),
        times_(times),
        rules_(rules),
        latest_(latest),
        schedule_{.name = "planned", .micro_batches = micro_batches, .stages = stages, .passes = {}},
        ranks_(static_cast<std::size_t>(stages.ranks())),
        ends_(stages.rank_of_stage(), micro_batches) {
    schedule_.passes.resize(ranks_.size());
    for (int r = 0; r < stages.ranks(); ++r) {
      Rank& rank = ranks_[static_cast<std::size_t>(r)];
      rank.next_forward.assign(static_cast<std::size_t>(stages.chunks(r)), 0);
      rank.next_input = rank.next_weight = rank.next_forward;
      double whole = 0;
      for (int c = 0; c < stages.chunks(r); ++c) {
        const int stage = stages.stage(r, c);
        whole += figure(times.held, stage);
        rank.left += micro_batches * (figure(times.forward, stage) + figure(times.backward_input, stage) +
                                      figure(times.backward_weight, stage));
      }
      rank.limit = figure(rules.limit, r) * (1 + tolerance);
      rank.whole = whole;
      require(whole <= rank.limit, "list_passes: a rank may hold less than one micro-batch");
      if (rules.order) rank.order = skeleton(rules.order->passes[static_cast<std::size_t>(r)]);
    }
  }

  std::optional<Schedule> run() {
    for (int r = 0; r < stages_.ranks(); ++r) ranks_[static_cast<std::size_t>(r)].choice = choose(r);
    for (int left = 3 * stages_.count() * schedule_.micro_batches; left > 0; --left) {
      // The rank that can begin first does, so nothing that others do later could have changed its choice.
      int chosen = -1;
      double begin = 0;
      for (int r = 0; r < stages_.ranks(); ++r) {
        const std::optional<Choice>& choice = ranks_[static_cast<std::size_t>(r)].choice;
        if (choice && (chosen < 0 || choice->begin < begin)) chosen = r, begin = choice->begin;
      }
      if (chosen < 0) {
        require(rules_.order != nullptr, "list_passes: no pass can run");
        return std::nullopt;
      }
      if (!compute(chosen)) return std::nullopt;
    }
    return std::move(schedule_);
  }

 private:
  struct Choice {
    Pass pass;
    double begin = 0;
  };
  struct Rank {
    double free = 0, left = 0, held = 0, limit = 0;          // left: time still to be computed
    double whole = 0;                                        // held by a micro-batch in all chunks
    std::vector<int> next_forward, next_input, next_weight;  // micro-batch by chunk
    std::vector<Pass> order;                                 // all but weight parts, if an order is given
    std::size_t ordered = 0;                                 // number of these that are computed
    std::vector<Pass> waiting;                               // with an order: weight parts in that of their input parts
    std::size_t weights = 0;                                 // number of these that are computed
    std::optional<Choice> choice;
  };

  static std::vector<Pass> skeleton(const std::vector<Pass>& passes) {
    std::vector<Pass> list;
    for (Pass pass : passes) {
      if (pass.kind == PassKind::backward_weight) continue;
      if (pass.kind == PassKind::backward) pass.kind = PassKind::backward_input;
      pass.braided = false;
      list.push_back(pass);
    }
    return list;
  }

  double duration(int rank, const Pass& pass) const {
    const int stage = stages_.stage(rank, pass.chunk);
    return figure(pass.kind == PassKind::forward          ? times_.forward
                  : pass.kind == PassKind::backward_input ? times_.backward_input
                                                          : times_.backward_weight,
                  stage);
  }

  std::optional<double> ready(int rank, const Pass& pass) const {
    if (pass.micro_batch >= schedule_.micro_batches) return std::nullopt;
    if (pass.kind == PassKind::forward && !has_room(rank, pass)) return std::nullopt;
    const bool enters = pass.kind == PassKind::forward && stages_.stage(rank, pass.chunk) == 0;
    return enters ? std::optional(pass.micro_batch * rules_.interval)
                  : ends_.ready(stage_pass(schedule_, rank, pass), times_.send);
  }

  // True if all micro-batches that a rank has begun can still be finished after the pass, one after the other from the oldest
  // on, each with what those before it have freed (as Dijkstra's banker lends). So the oldest one never waits for memory, and
  // no pass waits for ever.
  bool has_room(int number, const Pass& pass) const {
    const Rank& rank = ranks_[static_cast<std::size_t>(number)];
    double now = rank.held + figure(times_.held, stages_.stage(number, pass.chunk));
    if (rules_.order) return now <= rank.limit;
    if (now + rank.whole <= rank.limit) return true;  // none of them holds more than that at once, and each frees some
    const int oldest = *std::min_element(rank.next_weight.begin(), rank.next_weight.end());
    for (int m = oldest;; ++m) {
      double missing = 0, freed = 0;
      bool begun = false;
      for (int c = 0; c < stages_.chunks(number); ++c) {
        const auto chunk = static_cast<std::size_t>(c);
        const double held = figure(times_.held, stages_.stage(number, c));
        const bool forward = rank.next_forward[chunk] > m || (c == pass.chunk && m == pass.micro_batch);
        begun = begun || forward;
        if (!forward) missing += held;
        if (forward && rank.next_weight[chunk] <= m) freed += held;
      }
      if (!begun) return true;
      if (now + missing > rank.limit) return false;
      now -= freed;
    }
  }

  // The next pass of a rank and the time when it would begin; nothing while all its passes wait for what is not computed yet.
  std::optional<Choice> choose(int number) {
    const Rank& rank = ranks_[static_cast<std::size_t>(number)];
    const auto choice_of = [&](const Pass& pass) -> std::optional<Choice> {
      const std::optional<double> from = ready(number, pass);
      return from ? std::optional(Choice{pass, std::max(*from, rank.free)}) : std::nullopt;
    };
    std::optional<Choice> best, weight;
    if (rules_.order) {
      if (rank.ordered < rank.order.size()) best = choice_of(rank.order[rank.ordered]);
      if (rank.weights < rank.waiting.size()) weight = choice_of(rank.waiting[rank.weights]);
    } else {
      std::optional<Choice> input, forward;
      const auto consider = [&](std::optional<Choice>& first, PassKind kind, int chunk, const std::vector<int>& next) {
        const std::optional<Choice> other = choice_of({kind, chunk, next[static_cast<std::size_t>(chunk)]});
        // Of several chunks the later one wins: it is nearer to the end of the micro-batch, or to its beginning in backward.
        if (other && (!first || other->begin <= first->begin)) first = other;
      };
      for (int chunk = 0; chunk < stages_.chunks(number); ++chunk) {
        consider(input, PassKind::backward_input, chunk, rank.next_input);
        consider(forward, PassKind::forward, chunk, rank.next_forward);
        consider(weight, PassKind::backward_weight, chunk, rank.next_weight);
      }
      std::optional<Choice> second = forward;
      best = input;
      if (rules_.forward_first) std::swap(best, second);
      if (second && (!best || second->begin < best->begin)) best = second;
    }
    if (!weight) return best;
    const double wait = rules_.patience * duration(number, weight->pass);
    return best && best->begin <= weight->begin + wait ? best : weight;
  }

  // Computes the rank's choice. False if the schedule cannot end in time any more.
  bool compute(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    const Choice choice = rank.choice.value();
    const Pass& pass = choice.pass;
    const double seconds = duration(number, pass), held = figure(times_.held, stages_.stage(number, pass.chunk));
    rank.free = choice.begin + seconds;
    rank.left -= seconds;
    if (rank.free + rank.left > latest_ * (1 + tolerance)) return false;
    schedule_.passes[static_cast<std::size_t>(number)].push_back(pass);
    const int other = ends_.finish(stage_pass(schedule_, number, pass), rank.free);
    const auto chunk = static_cast<std::size_t>(pass.chunk);
    if (pass.kind == PassKind::forward) {
      ++rank.next_forward[chunk];
      rank.held += held;
    } else if (pass.kind == PassKind::backward_input) {
      ++rank.next_input[chunk];
      if (rules_.order) rank.waiting.push_back({PassKind::backward_weight, pass.chunk, pass.micro_batch});
    } else {
      ++rank.next_weight[chunk];
      rank.held -= held;
    }
    if (rules_.order) ++(pass.kind == PassKind::backward_weight ? rank.weights : rank.ordered);
    rank.choice = choose(number);
    if (other >= 0) ranks_[static_cast<std::size_t>(other)].choice = choose(other);
    return true;
  }

  const StageMap& stages_;
  const StageTimes& times_;
  const ListRules& rules_;
  const double latest_;
  Schedule schedule_;
  std::vector<Rank> ranks_;
  PassEnds ends_;
};

}  // namespace

std::optional<Schedule> list_passes(const StageMap& stages, int micro_batches, const StageTimes& times, const ListRules& rules,
                                    double latest) {
  return ListScheduler(stages, micro_batches, times, rules, latest).run();
}

}  // namespace plait::parallel
