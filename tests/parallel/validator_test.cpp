// Programs from the generators are valid, and small changes make them invalid.
#include "parallel/proof/validator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "core/error.h"
#include "parallel/collectives.h"
#include "parallel/make_layout.h"
#include "parallel/program/program_waits.h"
#include "parallel/program_sets.h"
#include "parallel/schedule_kinds.h"

namespace plait::parallel {
namespace {

bool exists(const SetSpec& spec) {
  const ScheduleSpec& s = spec.schedule;
  const ScheduleRow& row = schedule_row(s.kind);
  if (row.in_rounds && row.chunks_with(s.virtual_stages) > 1 && s.micro_batches % s.ranks != 0) return false;
  return s.virtual_stages == 1 || row.takes_any_chunks() || s.virtual_stages == row.chunks;
}

// Expects the set to be valid, or to be refused if the schedule does not exist.
void check(const SetSpec& spec) {
  SCOPED_TRACE(spec.name());
  // Without a pipeline, every named schedule is 1F1B, which has one stage.
  if (spec.schedule.ranks == 1 && spec.schedule.virtual_stages > 1 && spec.tied && spec.zero == 2) return;
  if (!exists(spec)) {
    EXPECT_THROW(make_set(spec), ConfigError);
    return;
  }
  EXPECT_EQ(first_problem(make_set(spec)), "");
}

struct Options {
  int zero = 0;
  bool overlap = true, tied = true;
};
std::vector<Options> options_for(ScheduleKind schedule) {
  std::vector<Options> list;
  for (const int zero : {0, 1, 2}) {
    if (zero == 2 && schedule_row(schedule).splits_backward)
      continue;  // refused by the configuration: weight parts come too late
    for (const bool overlap : {true, false}) {
      for (const bool tied : {true, false}) list.push_back({zero, overlap, tied});
    }
  }
  return list;
}

// Numbers of micro-batches: few, fewer and more than one round and two of the ranks, and many.
std::set<int> micro_batch_counts(int ranks) {
  std::set<int> counts{1, 2, 3, 4, 5, 32};
  for (const int round : {ranks, 2 * ranks}) {
    for (const int off : {-1, 0, 1}) counts.insert(std::max(1, round + off));
  }
  return counts;
}

class EverySchedule : public testing::TestWithParam<ScheduleKind> {};

// Stages and micro-batches come in all combinations; the other options take turns.
TEST_P(EverySchedule, IsValidForAllSizes) {
  const std::vector<Options> options = options_for(GetParam());
  constexpr std::array<std::pair<int, int>, 4> meshes = {{{1, 1}, {2, 1}, {1, 2}, {2, 2}}};
  constexpr std::array<std::int64_t, 3> bucket_bytes = {1 << 14, 1 << 30, 1 << 11};
  std::size_t turn = 0;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int virtual_stages = 1; virtual_stages <= 4; ++virtual_stages) {
      for (const int micro_batches : micro_batch_counts(ranks)) {
        turn += 7;  // no factor in common with their numbers
        const auto [zero, overlap, tied] = options[turn % options.size()];
        const auto [data, tensor] = meshes[turn / options.size() % meshes.size()];
        check({.schedule = {GetParam(), ranks, virtual_stages, micro_batches},
               .data = data,
               .tensor = tensor,
               .zero = zero,
               .overlap = overlap,
               .tied = tied,
               .sequence_parallel = turn % 5 != 0,
               .bucket_bytes = bucket_bytes[turn / options.size() / meshes.size() % bucket_bytes.size()]});
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EverySchedule, IsValidForAllOptions) {
  for (const auto& [zero, overlap, tied] : options_for(GetParam())) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int virtual_stages : {1, 2}) {
        for (const int micro_batches : std::set{1, ranks, ranks + 2}) {
          for (const int size : {1, 2}) {
            check({.schedule = {GetParam(), ranks, virtual_stages, micro_batches},
                   .data = size,
                   .tensor = size,
                   .zero = zero,
                   .overlap = overlap,
                   .tied = tied,
                   .ahead = ranks == 1 && size == 2});
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(EverySchedule, IsValidInHalvesOfMicroBatches) {
  std::size_t turn = 0;
  for (const auto& [zero, overlap, tied] : options_for(GetParam())) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int virtual_stages : {1, 2}) {
        for (const int micro_batches : {1, 2, 5, 8}) {
          ++turn;
          check({.schedule = {GetParam(), ranks, virtual_stages, micro_batches},
                 .data = turn % 3 == 0 ? 2 : 1,
                 .tensor = 2,
                 .zero = zero,
                 .overlap = overlap,
                 .tied = tied,
                 .sequence_parallel = turn % 5 != 0,
                 .recompute = turn % 7 < 3,
                 .halves = true,
                 .documents = turn % 4 == 1 ? Documents::separate : Documents::joined,
                 .fp8 = turn % 3 == 1});
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(EverySchedule, HasAValidEvaluation) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const SetSpec spec{.schedule = {GetParam(), ranks, some_virtual_stages(GetParam()), ranks},
                       .data = 2,
                       .tensor = 2,
                       .documents = ranks % 2 == 0 ? Documents::separate : Documents::joined,
                       .fp8 = ranks % 3 == 0};
    SCOPED_TRACE(spec.name());
    EXPECT_EQ(first_problem(make_set(spec, false)), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, EverySchedule, testing::ValuesIn(built_in_kinds()), [](const auto& parameter) {
  std::string name = to_string(parameter.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Small programs of each kind, to be changed.
std::vector<SetSpec> small_specs() {
  return {{.schedule = {ScheduleKind::one_f_one_b, 1, 1, 3}, .data = 2, .zero = 2},
          {.schedule = {ScheduleKind::one_f_one_b, 3, 1, 4}, .data = 2, .zero = 1},
          {.schedule = {ScheduleKind::one_f_one_b, 1, 1, 3}, .tensor = 2},
          {.schedule = {ScheduleKind::gpipe, 2, 1, 3}, .tensor = 2, .tied = false},
          {.schedule = {ScheduleKind::one_f_one_b, 2, 1, 2}, .tensor = 2, .sequence_parallel = false, .recompute = true},
          {.schedule = {ScheduleKind::zb_v, 2, 1, 4}, .tensor = 2, .recompute = true},
          {.schedule = {ScheduleKind::interleaved, 2, 2, 4}, .data = 2, .zero = 2},
          {.schedule = {ScheduleKind::zb_h1, 3, 1, 4}},
          {.schedule = {ScheduleKind::zb_h1, 2, 1, 2}, .tensor = 2, .halves = true},
          {.schedule = {ScheduleKind::zb_v, 2, 1, 4}, .data = 2, .zero = 1},
          {.schedule = {ScheduleKind::zb_h1, 3, 1, 4}, .documents = Documents::separate},
          {.schedule = {ScheduleKind::zb_v, 2, 1, 4}, .data = 2, .zero = 1, .fp8 = true},
          {.schedule = {ScheduleKind::one_f_one_b, 2, 1, 2}, .tensor = 2, .recompute = true, .fp8 = true},
          {.schedule = {ScheduleKind::zb_v, 2, 1, 4}, .tensor = 2, .recompute = true, .documents = Documents::separate}};
}

// Calls `body` for each instruction of each program of valid sets; `body` changes the set and says whether that made it wrong.
void for_each_change(const std::function<bool(ProgramSet&, Program&, Instruction&)>& body) {
  for (const SetSpec& spec : small_specs()) {
    const ProgramSet valid = make_set(spec);
    ASSERT_EQ(first_problem(valid), "") << spec.name();
    for (std::size_t p = 0; p < valid.programs.size(); ++p) {
      for (std::size_t n = 0; n < valid.programs[p].program.instructions.size(); ++n) {
        ProgramSet changed = valid;
        Program& program = changed.programs[p].program;
        const std::string name = to_string(program.instructions[n]);
        if (!body(changed, program, program.instructions[n])) continue;
        ASSERT_FALSE(validate(changed).empty())
            << spec.name() << ", pipeline rank " << p << ", instruction " << n << ", " << name;
      }
    }
  }
}

TEST(Validator, MissesNoIndexThatIsOffByOne) {
  for (const auto field : {&Instruction::micro_batch, &Instruction::chunk, &Instruction::segment, &Instruction::bucket}) {
    for (const int off : {-1, 1}) {
      for_each_change([&](ProgramSet&, Program&, Instruction& i) {
        i.*field += off;
        return true;
      });
    }
  }
}

TEST(Validator, MissesNoSlotThatIsOffByOne) {
  for (const auto field : {&Instruction::batch_slot, &Instruction::slot, &Instruction::input_slot, &Instruction::stash,
                           &Instruction::gradient_in, &Instruction::gradient_out}) {
    for (const int off : {-1, 1}) {
      for_each_change([&](ProgramSet& set, Program& program, Instruction& i) {
        const auto buffers = [&, buckets = std::vector<Bucket>(static_cast<std::size_t>(i.bucket + 1))] {
          std::vector<BufferId> list;
          for (const BufferUse& use : buffer_uses(program, i, buckets)) list.push_back(use.buffer);
          return list;
        };
        const std::vector<BufferId> before = buffers();
        i.*field += off;
        // It is no error to read a batch without need, or to set a slot that the embedding does not use.
        const bool attends = i.kind == InstructionKind::forward || i.kind == InstructionKind::backward_input;
        const bool starts = set.documents == Documents::separate && attends && i.segment < set.head() &&
                            set.kind(i.segment) == model::SegmentKind::attention;
        const bool needs_batch =
            i.segment <= 0 || starts || i.kind == InstructionKind::loss ||
            (i.segment == set.head() && i.kind == InstructionKind::forward && set.segment(i.segment).partial);
        const bool means_nothing =
            (field == &Instruction::batch_slot && !needs_batch) || (field == &Instruction::stash && i.segment == 0);
        return buffers() != before && !means_nothing;
      });
    }
  }
}

TEST(Validator, MissesNoMessageThatFillsAnotherBuffer) {
  for (const auto field : {&Instruction::peer_chunk, &Instruction::peer_slot}) {
    for (const int off : {-1, 1}) {
      for_each_change([&](ProgramSet&, Program&, Instruction& i) {
        i.*field += off;
        return is_send(i.kind);
      });
    }
  }
}

TEST(Validator, MissesNoFlagThatIsWrong) {
  for_each_change([](ProgramSet& set, Program&, Instruction& i) {
    const bool losses = i.kind == InstructionKind::loss;
    const bool backward = i.kind == InstructionKind::norm_backward || i.kind == InstructionKind::backward_weight;
    const bool sum = reduces_gradients(i, groups::replicas) && set.zero == 2;
    i.accumulate = !i.accumulate;
    return losses || backward || sum;
  });
  for_each_change([](ProgramSet&, Program&, Instruction& i) {
    i.accumulate_tokens = !i.accumulate_tokens;
    return i.kind == InstructionKind::backward_weight && i.segment == 0;
  });
}

TEST(Validator, MissesNoCollectiveThatIsWrong) {
  for (const Name<Operation>& operation : names<Operation>) {
    for_each_change([&](ProgramSet&, Program&, Instruction& i) {
      const bool changes = i.collective.operation != operation.value;
      // Both add up; they differ only in who keeps the sum.
      const auto sums = [](Operation o) { return o == Operation::sum || o == Operation::reduce_scatter; };
      if (communicates_in_pass(i) && sums(operation.value) && sums(i.collective.operation)) return false;
      i.collective.operation = operation.value;
      return is_collective(i) && changes;
    });
  }
  for (const Group& group : groups::all) {
    for_each_change([&](ProgramSet& set, Program&, Instruction& i) {
      const bool changes = i.collective.group != group;
      i.collective.group = group;
      return is_collective(i) && changes && set.layout.ranks() > 1;
    });
  }
  for (const Name<Purpose>& purpose : names<Purpose>) {
    for_each_change([&](ProgramSet&, Program&, Instruction& i) {
      const bool changes = i.collective.purpose != purpose.value;
      i.collective.purpose = purpose.value;
      return is_collective(i) && changes;
    });
  }
  for_each_change([](ProgramSet&, Program& program, Instruction& i) {
    i.adds_residual = !i.adds_residual;
    // If another stage of this rank ends in front of it, it adds once more what add_residual has added: to the same sum.
    return i.kind == InstructionKind::norm && i.segment > program.chunk_of(i).first_segment;
  });
  for_each_change([](ProgramSet&, Program& program, Instruction& i) {
    i.recomputed = !i.recomputed;
    return i.kind == InstructionKind::norm ? program.segment(i.segment).recomputes_norm
                                           : i.kind == InstructionKind::backward_weight && i.segment > 0;
  });
  for_each_change([](ProgramSet&, Program& program, Instruction& i) {
    ++i.lane;
    const bool reads_lane = i.kind == InstructionKind::add_residual || (i.kind == InstructionKind::norm && i.adds_residual);
    return reads_lane || (i.kind == InstructionKind::loss && program.segment(i.segment).partial);
  });
}

// Waits are derived anew, so that nothing else is wrong.
TEST(Validator, MissesNoCollectiveThatIsLeftOut) {
  for (const SetSpec& spec : small_specs()) {
    const ProgramSet valid = make_set(spec);
    for (std::size_t p = 0; p < valid.programs.size(); ++p) {
      const std::vector<Instruction>& all = valid.programs[p].program.instructions;
      for (std::size_t n = 0; n < all.size(); ++n) {
        if (!is_collective(all[n])) continue;
        ProgramSet changed = valid;
        Program& program = changed.programs[p].program;
        program.instructions.erase(program.instructions.begin() + static_cast<std::ptrdiff_t>(n));
        for (Instruction& i : program.instructions) i.waits.clear();
        derive_waits(program, changed.programs[p].buckets);
        ASSERT_FALSE(validate(changed).empty()) << spec.name() << ", pipeline rank " << p << ", " << to_string(all[n]);
      }
    }
  }
}

TEST(Validator, MissesNoGatherIntoMemoryThatMayBeInUse) {
  for_each_change([](ProgramSet&, Program&, Instruction& i) {
    const bool changes = communicates_in_pass(i) && !i.collective.into_free && i.recomputed &&
                         i.collective.destination.kind == BufferKind::norm_again &&
                         i.collective.operation == Operation::all_gather;
    i.collective.into_free = true;
    return changes && i.collective.tensor == model::PassTensor::norm;
  });
}

TEST(Validator, MissesNoInstructionOnAnotherStream) {
  for_each_change([](ProgramSet&, Program& program, Instruction& i) {
    const StreamRole role = program.stream_of(i).role;
    i.stream = (i.stream + 1) % static_cast<int>(program.streams.size());
    // A batch may be loaded on the compute stream, and a reduction may run on it if nothing else of the same ranks is
    // elsewhere.
    return role != StreamRole::copy && role != StreamRole::reduce;
  });
}

TEST(Validator, MissesNoWaitThatIsDropped) {
  for (std::size_t which = 0; which < 4; ++which) {
    for_each_change([&](ProgramSet&, Program&, Instruction& i) {
      if (which >= i.waits.size()) return false;
      i.waits.erase(i.waits.begin() + static_cast<std::ptrdiff_t>(which));
      return true;
    });
  }
}

TEST(Validator, RanksThatShareAProgramAreCheckedAsIfEachHadItsOwn) {
  for (const SetSpec& spec : small_specs()) {
    ProgramSet set = make_set(spec, true, false);
    EXPECT_EQ(first_problem(set), "") << spec.name();
    EXPECT_EQ(condensed(set).layout, set.layout);
  }
  SetSpec spec = small_specs()[1];
  spec.data = 512;
  spec.tensor = 4;
  const ProgramSet large = make_set(spec);
  EXPECT_EQ(condensed(large).layout, make_layout(3, 2, 2));
  EXPECT_EQ(first_problem(large), "");
}

}  // namespace
}  // namespace plait::parallel
