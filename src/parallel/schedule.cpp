#include "parallel/schedule.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "parallel/pass_ends.h"

namespace plait::parallel {
namespace {

// A rank's part of a pipeline that never ends: which chunk its i-th forward and its i-th backward are for (micro-batches count
// up within a chunk), and how many forwards come before the first backward; from there on one forward and one backward take
// turns. A schedule is what is left when the passes of micro-batches beyond the last are struck out: no pass that stays needs
// one of them, so if the endless pipeline runs, the schedule does.
struct Stream {
  std::function<int(int)> forward_chunk, backward_chunk;
  int forwards_ahead = 0;
};

int only_chunk(int) { return 0; }

Stream gpipe_stream(const Schedule& s, int) { return {only_chunk, only_chunk, s.micro_batches}; }

Stream one_forward_one_backward_stream(const Schedule& s, int rank) { return {only_chunk, only_chunk, s.ranks - 1 - rank}; }

// Narayanan et al. 2021: micro-batches go through the chunks in groups of as many as there are ranks, and micro-batch 0 comes
// around (chunks - 1) * ranks forwards before its last chunk. One chunk is no interleaving, but 1F1B.
Stream interleaved_stream(const Schedule& s, int rank) {
  const auto chunk = [ranks = s.ranks, chunks = s.chunks](int i) { return i / ranks % chunks; };
  const int to_last_rank = s.ranks - 1 - rank;
  return {chunk, [chunk, chunks = s.chunks](int i) { return chunks - 1 - chunk(i); },
          s.chunks == 1 ? to_last_rank : (s.chunks - 1) * s.ranks + 2 * to_last_rank};
}

// Qi et al. 2023, section 6, in passes of equal cost. Micro-batch 0 takes 2 (ranks - rank) - 1 passes from here down the V and
// up to here again; it takes 2 rank + 1 more to the last stage and back, while outputs of both chunks arrive in turn; then only
// chunk 1 has gradients, until the first comes down the V and up again. From then on the chunks take turns.
Stream v_stream(const Schedule& s, int rank) {
  const int below = s.ranks - rank;
  const int down_and_up = 2 * below - 1;
  const int ahead = down_and_up + 2 * rank;
  return {[=](int i) {
            if (i < ahead) return i >= down_and_up && (i - down_and_up) % 2 == 0 ? 1 : 0;
            return i < ahead + below ? 1 : (i - ahead - below) % 2;
          },
          [=](int i) { return i < below ? 1 : (i - below) % 2; }, ahead};
}

std::vector<Pass> merge(const Stream& stream, const Schedule& s, PassKind backward) {
  std::vector<Pass> passes;
  std::vector<int> forwards(static_cast<std::size_t>(s.chunks)), backwards = forwards;
  const auto add = [&](PassKind kind, int chunk, std::vector<int>& counts) {
    const int micro_batch = counts[static_cast<std::size_t>(chunk)]++;
    if (micro_batch < s.micro_batches) passes.push_back({kind, chunk, micro_batch});
  };
  const std::size_t all = 2 * static_cast<std::size_t>(s.chunks) * static_cast<std::size_t>(s.micro_batches);
  for (int i = 0; passes.size() < all; ++i) {
    add(PassKind::forward, stream.forward_chunk(i), forwards);
    if (i >= stream.forwards_ahead) add(backward, stream.backward_chunk(i - stream.forwards_ahead), backwards);
  }
  return passes;
}

// Puts the weight parts of split backwards wherever a rank would otherwise wait, in passes of equal cost: for its inputs, or
// for memory, when `most_in_flight` micro-batches are held already. So weight parts come as late as memory allows while
// forwards are left, which sends gradients on soonest, and fill the drain of the pipeline after that.
void fill_with_weight_passes(Schedule& s, int most_in_flight) {
  struct Rank {
    std::vector<Pass> passes;
    std::size_t next = 0, weights = 0;  // of the passes given; of `waiting`
    std::vector<Pass> waiting;          // weight parts, in the order in which their input parts ran
    int in_flight = 0;
  };
  std::vector<Rank> ranks(s.passes.size());
  PassEnds ends(s);
  std::size_t left = 0;
  for (const std::vector<Pass>& passes : s.passes) left += passes.size() + passes.size() / 2;
  for (double now = 0; left > 0; ++now) {
    const std::size_t before = left;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Rank& rank = ranks[r];
      const int number = static_cast<int>(r);
      const auto can_run = [&](const Pass& pass) {
        if (pass.kind == PassKind::forward && rank.in_flight == most_in_flight) return false;
        const std::optional<double> ready = ends.ready(number, pass);
        return ready && *ready <= now;
      };
      Pass pass;
      if (rank.next < s.passes[r].size() && can_run(s.passes[r][rank.next])) {
        pass = s.passes[r][rank.next++];
      } else if (rank.weights < rank.waiting.size()) {
        pass = rank.waiting[rank.weights++];
      } else {
        continue;
      }
      --left;
      ends.finish(number, pass, now + 1);
      rank.passes.push_back(pass);
      if (pass.kind == PassKind::forward) ++rank.in_flight;
      if (pass.kind == PassKind::backward_weight) --rank.in_flight;
      if (pass.kind == PassKind::backward_input) {
        rank.waiting.push_back({PassKind::backward_weight, pass.chunk, pass.micro_batch});
      }
    }
    require(left < before, "a schedule deadlocks while its weight passes are filled in");
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) s.passes[r] = std::move(ranks[r].passes);
}

struct Generator {
  std::string_view name;
  Stream (*stream)(const Schedule&, int rank);
  int chunks;  // per rank; 0: as parallel.virtual_stages says
  Placement placement;
  bool splits_backward;
};

constexpr Generator generators[] = {
    {"gpipe", gpipe_stream, 1, Placement::looped, false},
    {"1f1b", one_forward_one_backward_stream, 1, Placement::looped, false},
    {"interleaved", interleaved_stream, 0, Placement::looped, false},
    {"zb-h1", one_forward_one_backward_stream, 1, Placement::looped, true},
    {"zb-v", v_stream, 2, Placement::v_shape, true},
};

// What is wrong with sizes that are all positive.
std::vector<ConfigProblem> problems_of(const Generator& g, const ScheduleSpec& spec) {
  std::vector<ConfigProblem> problems;
  const std::string name = "parallel.schedule " + spec.name;
  if (g.chunks == 1 && spec.virtual_stages > 1) {
    problems.push_back({"parallel.virtual_stages", std::to_string(spec.virtual_stages),
                        name + " has one stage per pipeline rank; use 1, or parallel.schedule interleaved", "", 0});
  }
  if (g.chunks > 1 && spec.virtual_stages > 1 && spec.virtual_stages != g.chunks) {
    problems.push_back({"parallel.virtual_stages", std::to_string(spec.virtual_stages),
                        name + " always has " + std::to_string(g.chunks) + " stages per pipeline rank; leave it out", "", 0});
  }
  // Micro-batches go through a rank's chunks in groups of as many as there are ranks; a smaller group would leave a gap in
  // every chunk.
  if (g.stream == interleaved_stream && spec.micro_batches % spec.ranks != 0) {
    problems.push_back({"parallel.schedule", spec.name,
                        "needs a number of micro-batches that is a multiple of parallel.pipeline, but " +
                            std::to_string(spec.micro_batches) + " is no multiple of " + std::to_string(spec.ranks) +
                            "; change train.global_batch or train.micro_batch (" +
                            std::to_string((spec.micro_batches / spec.ranks + 1) * spec.ranks) +
                            " micro-batches would do), or use parallel.schedule 1f1b or zb-v, which take any number",
                        "", 0});
  }
  return problems;
}

// ConfigError unless the schedule exists for these sizes.
const Generator& generator(const ScheduleSpec& spec) {
  std::vector<ConfigProblem> problems;
  const auto positive = [&](const char* path, int value, const char* rule) {
    if (value < 1) problems.push_back({path, std::to_string(value), rule, "", 0});
  };
  positive("parallel.pipeline", spec.ranks, "must be at least 1");
  positive("parallel.virtual_stages", spec.virtual_stages, "must be at least 1");
  positive("train.global_batch", spec.micro_batches, "must leave at least one micro-batch to each pipeline");
  const Generator* found =
      std::find_if(std::begin(generators), std::end(generators), [&](const Generator& g) { return g.name == spec.name; });
  if (found == std::end(generators)) {
    std::string names;
    for (const std::string& name : schedule_names()) names += (names.empty() ? "" : ", ") + name;
    problems.push_back({"parallel.schedule", spec.name, "must be one of " + names, "", 0});
  } else if (problems.empty()) {
    problems = problems_of(*found, spec);
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return *found;
}

}  // namespace

int Schedule::stage(int rank, int chunk) const {
  return placement == Placement::v_shape && chunk == 1 ? 2 * ranks - 1 - rank : chunk * ranks + rank;
}

int Schedule::rank_of(int stage) const {
  return placement == Placement::v_shape && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks;
}

int Schedule::chunk_of(int stage) const { return stage / ranks; }

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Generator& g : generators) names.emplace_back(g.name);
  return names;
}

Schedule make_schedule(const ScheduleSpec& spec) {
  const Generator& g = generator(spec);
  Schedule s{spec.name, spec.ranks, g.chunks > 0 ? g.chunks : spec.virtual_stages, spec.micro_batches, g.placement, {}};
  for (int rank = 0; rank < s.ranks; ++rank) {
    s.passes.push_back(merge(g.stream(s, rank), s, g.splits_backward ? PassKind::backward_input : PassKind::backward));
  }
  // As much memory as 1F1B takes on its first rank.
  if (g.splits_backward) fill_with_weight_passes(s, s.ranks * s.chunks);
  return s;
}

}  // namespace plait::parallel
