#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "parallel/program_sets.h"
#include "runtime/instruction_graphs.h"

namespace plait::parallel {
namespace {

using runtime::repeated_instructions;

SetSpec repeated_spec(int ranks, int micro_batches) {
  return {.schedule = {.kind = ScheduleKind::one_f_one_b, .ranks = ranks, .micro_batches = micro_batches}};
}

std::vector<SetSpec> repeating_specs(int micro_batches) {
  std::vector<SetSpec> list = {repeated_spec(1, micro_batches), repeated_spec(2, micro_batches),
                               repeated_spec(1, micro_batches), repeated_spec(2, micro_batches)};
  list[2].tensor = 2, list[2].fp8 = true;
  list[3].tensor = 2, list[3].recompute = true, list[3].zero = 2, list[3].data = 2;
  list.push_back({.schedule = {.kind = ScheduleKind::zb_v, .ranks = 2, .virtual_stages = 2, .micro_batches = micro_batches}});
  return list;
}

bool is_computing(const Instruction& i) {
  return i.kind == InstructionKind::forward || i.kind == InstructionKind::loss || i.kind == InstructionKind::backward_input ||
         i.kind == InstructionKind::backward_weight;
}

// The work of an instruction and the memory it works on.
auto work_and_memory(const RankProgram& rank, const Instruction& i) {
  std::set<std::pair<BufferId, bool>> uses;
  for (const BufferUse& use : buffer_uses(rank.program, i, rank.buckets)) uses.emplace(use.buffer, use.writes);
  return std::tuple(i.kind, i.part, i.stream, i.segment, i.accumulate, i.accumulate_tokens, i.recomputed, uses);
}

TEST(RepeatedInstructions, DoTheSameToTheSameMemory) {
  for (const SetSpec& spec : repeating_specs(12)) {
    SCOPED_TRACE(spec.name());
    const ProgramSet set = make_set(spec);
    for (const RankProgram& rank : set.programs) {
      const Program& program = rank.program;
      std::vector<int> listed;
      for (const std::vector<int>& alike : repeated_instructions(program)) {
        for (const int n : alike) {
          listed.push_back(n);
          EXPECT_TRUE(work_and_memory(rank, program.at(n)) == work_and_memory(rank, program.at(alike.front())))
              << to_string(program.at(n)) << " and " << to_string(program.at(alike.front()));
        }
      }
      std::ranges::sort(listed);
      std::vector<int> all;
      for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
        if (is_computing(program.at(n))) all.push_back(n);
      }
      EXPECT_EQ(listed, all) << "each that computes, once";
    }
  }
}

TEST(RepeatedInstructions, AreAsManyForAnyNumberOfMicroBatches) {
  const std::vector<SetSpec> some = repeating_specs(12), more = repeating_specs(24);
  for (std::size_t s = 0; s < some.size(); ++s) {
    SCOPED_TRACE(some[s].name());
    const ProgramSet a = make_set(some[s]), b = make_set(more[s]);
    for (std::size_t rank = 0; rank < a.programs.size(); ++rank) {
      const std::size_t lists = repeated_instructions(a.programs[rank].program).size();
      EXPECT_EQ(repeated_instructions(b.programs[rank].program).size(), lists);
      const auto computing = std::ranges::count_if(a.programs[rank].program.instructions, is_computing);
      EXPECT_LT(lists, static_cast<std::size_t>(computing)) << "some are repeated";
    }
  }
}

}  // namespace
}  // namespace plait::parallel
