#include "parallel/schedule/schedule.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "config/job_rules.h"
#include "config/pass_replay.h"
#include "core/axis.h"
#include "core/error.h"
#include "parallel/schedule/planned_schedule.h"

namespace plait::parallel {
namespace {

struct Sizes {
  int ranks = 1, chunks = 1, micro_batches = 1;
};

// A rank's part of a pipeline that never ends: the chunks of its i-th forward and its i-th backward (micro-batches count up
// within a chunk), and the number of forwards before the first backward; from there on one forward and one backward take turns.
// A schedule is what is left when the passes of micro-batches beyond the last are struck out: no pass that stays needs one of
// them, so if the endless pipeline runs, the schedule does.
struct Stream {
  std::function<int(int)> forward_chunk, backward_chunk;
  int forwards_ahead = 0;
};

int only_chunk(int) { return 0; }

Stream gpipe_stream(const Sizes& s, int) { return {only_chunk, only_chunk, s.micro_batches}; }

Stream one_forward_one_backward_stream(const Sizes& s, int rank) { return {only_chunk, only_chunk, s.ranks - 1 - rank}; }

// Narayanan et al. 2021: micro-batches go through the chunks in groups of as many as there are ranks, and micro-batch 0 comes
// around (chunks - 1) * ranks forwards before its last chunk. One chunk is no interleaving, but 1F1B.
Stream interleaved_stream(const Sizes& s, int rank) {
  const auto chunk = [ranks = s.ranks, chunks = s.chunks](int i) { return i / ranks % chunks; };
  const int to_last_rank = s.ranks - 1 - rank;
  return {chunk, [chunk, chunks = s.chunks](int i) { return chunks - 1 - chunk(i); },
          s.chunks == 1 ? to_last_rank : (s.chunks - 1) * s.ranks + 2 * to_last_rank};
}

// Qi et al. 2023, section 6, in passes of equal cost. Micro-batch 0 takes 2 (ranks - rank) - 1 passes from here down the V and
// up to here again; it takes 2 rank + 1 more to the last stage and back, while outputs of both chunks arrive in turn; then only
// chunk 1 has gradients, until the first comes down the V and up again. From then on the chunks take turns.
Stream v_stream(const Sizes& s, int rank) {
  const int below = s.ranks - rank;
  const int down_and_up = 2 * below - 1;
  const int ahead = down_and_up + 2 * rank;
  return {[=](int i) {
            if (i < ahead) return i >= down_and_up && (i - down_and_up) % 2 == 0 ? 1 : 0;
            return i < ahead + below ? 1 : (i - ahead - below) % 2;
          },
          [=](int i) { return i < below ? 1 : (i - below) % 2; }, ahead};
}

std::vector<Pass> merge(const Stream& stream, const Sizes& s, PassKind backward) {
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
// forwards are left, which sends gradients on soonest, and later fill the drain of the pipeline.
void fill_with_weight_passes(Schedule& s, int most_in_flight) {
  struct Rank {
    std::vector<Pass> passes;
    std::size_t next = 0, weights = 0;  // number taken of the passes given, and of `waiting`
    std::vector<Pass> waiting;          // weight parts, in the order in which their input parts ran
    int in_flight = 0;
  };
  std::vector<Rank> ranks(s.passes.size());
  PassEnds ends(s.stages.rank_of_stage(), s.micro_batches);
  std::size_t left = 0;
  for (const std::vector<Pass>& passes : s.passes) left += passes.size() + passes.size() / 2;
  for (double now = 0; left > 0; ++now) {
    const std::size_t before = left;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Rank& rank = ranks[r];
      const int number = static_cast<int>(r);
      const auto can_run = [&](const Pass& pass) {
        if (pass.kind == PassKind::forward && rank.in_flight == most_in_flight) return false;
        const std::optional<double> ready = ends.ready(stage_pass(s, number, pass));
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
      ends.finish(stage_pass(s, number, pass), now + 1);
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

using StreamOf = Stream (*)(const Sizes&, int rank);

// The stream of each built-in schedule.
constexpr std::pair<ScheduleKind, StreamOf> streams[] = {
    {ScheduleKind::gpipe, gpipe_stream},
    {ScheduleKind::one_f_one_b, one_forward_one_backward_stream},
    {ScheduleKind::interleaved, interleaved_stream},
    {ScheduleKind::zb_h1, one_forward_one_backward_stream},
    {ScheduleKind::zb_v, v_stream},
};

constexpr StreamOf stream_of(ScheduleKind kind) {
  const auto* found = std::find_if(std::begin(streams), std::end(streams), [kind](const auto& s) { return s.first == kind; });
  return found == std::end(streams) ? nullptr : found->second;
}

static_assert(std::all_of(built_in_schedules.begin(), built_in_schedules.end(),
                          [](const ScheduleRow& row) {
                            return row.kind == ScheduleKind::planned || stream_of(row.kind) != nullptr;
                          }),
              "every named schedule of config/schedule_table.h has a generator");

// Throws ConfigError unless the schedule exists for these sizes.
void check(const ScheduleSpec& spec) {
  std::vector<ConfigProblem> problems;
  const auto positive = [&](const std::string& path, int value, const char* rule) {
    if (value < 1) problems.push_back({path, std::to_string(value), rule, "", 0});
  };
  positive(axis_key(stage_axis), spec.ranks, "must be at least 1");
  positive("parallel.virtual_stages", spec.virtual_stages, "must be at least 1");
  positive("train.global_batch", spec.micro_batches, "must leave at least one micro-batch to each pipeline");
  if (!problems.empty()) throw ConfigError(std::move(problems));
  const bool may_be_of_file = spec.kind == ScheduleKind::file || spec.kind == ScheduleKind::planned;
  require_rules({.size = {{stage_axis, spec.ranks}},
                 .micro_batches = spec.micro_batches,
                 .schedule = spec.kind,
                 .file = may_be_of_file ? spec.file.get() : nullptr,
                 .virtual_stages = spec.virtual_stages});
}

Schedule built_in_schedule(const ScheduleRow& row, const ScheduleSpec& spec) {
  const Sizes sizes{spec.ranks, static_cast<int>(row.chunks_with(spec.virtual_stages)), spec.micro_batches};
  Schedule s{std::string(row.name), sizes.micro_batches, StageMap(row.placement, sizes.ranks, sizes.chunks), {}};
  const PassKind backward = row.splits_backward ? PassKind::backward_input : PassKind::backward;
  for (int rank = 0; rank < sizes.ranks; ++rank) s.passes.push_back(merge(stream_of(row.kind)(sizes, rank), sizes, backward));
  // The limit is the memory that 1F1B takes on its first rank.
  if (row.splits_backward) fill_with_weight_passes(s, s.stages.count());
  return s;
}

Schedule schedule_of_file(const ScheduleSpec& spec) {
  require(spec.file != nullptr, "make_schedule: a schedule from a file, and no file");
  const ScheduleFile& file = *spec.file;
  const auto stages = static_cast<int>(file.rank_of_stage.size()), wanted = spec.ranks * spec.virtual_stages;
  if (spec.kind == ScheduleKind::planned && stages != wanted) {
    throw ConfigError({{"parallel.schedule", file.path,
                        fmt::format("has {} stages, but parallel.virtual_stages makes it {}", stages, wanted), "", 0}});
  }
  Schedule s{file.path, file.micro_batches, StageMap(file.rank_of_stage), {}};
  for (const std::vector<StagePass>& passes : file.ranks) {
    std::vector<Pass>& list = s.passes.emplace_back();
    for (const StagePass& p : passes) list.push_back({p.kind, s.stages.chunk_of(p.stage), p.micro_batch, p.braided});
  }
  return s;
}

// The rank of each stage.
std::vector<int> dealt(StagePlacement placement, int ranks, int chunks) {
  require(placement != StagePlacement::given, "StageMap: of a file, give the ranks");
  const bool is_v = placement == StagePlacement::v;
  require(!is_v || chunks == 2, "StageMap: a V has two stages per rank");
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    rank_of_stage.push_back(is_v && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks);
  }
  return rank_of_stage;
}

}  // namespace

StageMap::StageMap(std::vector<int> rank_of_stage) : ranks_(std::move(rank_of_stage)) {
  for (int stage = 0; stage < count(); ++stage) {
    const auto rank = static_cast<std::size_t>(rank_of(stage));
    if (rank >= stages_.size()) stages_.resize(rank + 1);
    chunks_.push_back(static_cast<int>(stages_[rank].size()));
    stages_[rank].push_back(stage);
  }
  require(std::none_of(stages_.begin(), stages_.end(), [](const auto& stages) { return stages.empty(); }),
          "StageMap: a rank without a stage");
}

StageMap::StageMap(StagePlacement placement, int ranks, int chunks) : StageMap(dealt(placement, ranks, chunks)) {}

Schedule make_schedule(const ScheduleSpec& spec) {
  check(spec);
  if (spec.kind == ScheduleKind::file || (spec.kind == ScheduleKind::planned && spec.file)) return schedule_of_file(spec);
  if (spec.kind == ScheduleKind::planned)
    return planned_schedule(spec.ranks, spec.virtual_stages, spec.micro_batches, equal_times);
  return built_in_schedule(schedule_row(spec.kind), spec);
}

std::string chunk_letters(int chunk) {
  constexpr int letters = 26;
  const std::string last(1, static_cast<char>('a' + chunk % letters));
  return chunk < letters ? last : chunk_letters(chunk / letters - 1) + last;
}

std::shared_ptr<const ScheduleFile> planned_passes(std::string csv, const std::string& source) {
  if (csv.size() > most_schedule_bytes) {
    throw ConfigError(source + ": the passes of the planned schedule: " + std::to_string(csv.size()) + " bytes, more than " +
                      std::to_string(most_schedule_bytes >> 20) + " MiB; take larger or fewer micro-batches");
  }
  std::string problem;
  auto passes = parse_schedule(std::move(csv), to_string(ScheduleKind::planned), problem);
  if (!passes) throw ConfigError(source + ": the passes of the planned schedule: " + problem);
  return passes;
}

std::shared_ptr<const ScheduleFile> planned_passes(const Schedule& schedule) {
  return planned_passes(schedule_csv(stage_passes(schedule)), "parallel.schedule");
}

StagePass stage_pass(const Schedule& schedule, int rank, const Pass& pass) {
  require(pass.chunk >= 0 && pass.chunk < schedule.stages.chunks(rank), "a schedule has a pass of a chunk that does not exist");
  require(pass.micro_batch >= 0 && pass.micro_batch < schedule.micro_batches, "a schedule has a pass of no micro-batch of it");
  return {pass.kind, schedule.stages.stage(rank, pass.chunk), pass.micro_batch, pass.braided};
}

std::vector<std::vector<StagePass>> stage_passes(const Schedule& schedule) {
  std::vector<std::vector<StagePass>> ranks;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::vector<StagePass>& list = ranks.emplace_back();
    for (const Pass& p : schedule.passes[static_cast<std::size_t>(rank)]) {
      const StagePass pass = stage_pass(schedule, rank, p);
      if (!schedule.halves) {
        list.push_back(pass);
      } else if (pass.micro_batch % 2 == 0) {
        list.push_back({pass.kind, pass.stage, pass.micro_batch / 2, false});
      }
    }
  }
  return ranks;
}

}  // namespace plait::parallel
