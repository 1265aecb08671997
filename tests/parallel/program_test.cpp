#include "parallel/program/pipeline_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "parallel/collectives.h"
#include "parallel/program_sets.h"

namespace plait::parallel {
namespace {

// Three buckets over segments 0..5, the middle one of three segments.
std::vector<Bucket> buckets() {
  return {{.range = {0, 128}, .segments = {5}, .place = 0},
          {.range = {128, 256}, .segments = {4, 3, 2}, .place = 1},
          {.range = {384, 256}, .segments = {1, 0}, .place = 2}};
}

// True if `later` cannot start before `earlier` has finished, by stream order and waits, within one step.
bool ordered(const Program& p, int earlier, int later) {
  std::set<int> reached{later};
  std::vector<int> open{later};
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    if (at == earlier) return true;
    std::vector<int> before;
    for (const int w : p.instructions[static_cast<std::size_t>(at)].waits) {
      if (w < at) before.push_back(w);
    }
    for (int i = at - 1; i >= 0; --i) {
      if (p.instructions[static_cast<std::size_t>(i)].stream == p.instructions[static_cast<std::size_t>(at)].stream) {
        before.push_back(i);
        break;
      }
    }
    for (const int b : before) {
      if (reached.insert(b).second) open.push_back(b);
    }
  }
  return false;
}

int find(const Program& p, InstructionKind kind, int micro_batch, int segment, int bucket = -1) {
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    const Instruction& n = p.instructions[i];
    if (n.kind == kind && n.micro_batch == micro_batch && n.segment == segment && n.bucket == bucket)
      return static_cast<int>(i);
  }
  return -1;
}

int find(const Program& p, bool (*is)(const Instruction&), int bucket) {
  const auto it = std::ranges::find_if(p.instructions, [&](const Instruction& i) { return is(i) && i.bucket == bucket; });
  return it == p.instructions.end() ? -1 : static_cast<int>(it - p.instructions.begin());
}

class DataParallelProgram : public testing::TestWithParam<std::tuple<int, bool, bool>> {
 protected:
  int micro_batches() const { return std::get<0>(GetParam()); }
  bool sharded() const { return std::get<1>(GetParam()); }
  bool overlap() const { return std::get<2>(GetParam()); }
  Program program = training_program({.schedule = make_schedule({.micro_batches = micro_batches()}),
                                      .sizes = {.shape = small_shape(6, false), .split = {}, .micro_batch = {1, 16}},
                                      .stages = {{0, 6}},
                                      .rank = 0,
                                      .buckets = buckets(),
                                      .zero = sharded() ? 1 : 0,
                                      .overlap = overlap(),
                                      .tied_here = false});
};

TEST_P(DataParallelProgram, EveryPassRunsOncePerMicroBatchAndBlock) {
  for (int mb = 0; mb < micro_batches(); ++mb) {
    for (int segment = 0; segment < 6; ++segment) {
      const int forward = find(program, InstructionKind::forward, mb, segment);
      const int weight = find(program, InstructionKind::backward_weight, mb, segment);
      ASSERT_GE(forward, 0);
      ASSERT_GE(weight, 0);
      EXPECT_TRUE(ordered(program, forward, weight));
      EXPECT_EQ(program.instructions[static_cast<std::size_t>(weight)].accumulate, mb > 0);
      if (segment > 0) {
        EXPECT_TRUE(ordered(program, find(program, InstructionKind::backward_input, mb, segment), weight));
      }
    }
  }
}

TEST_P(DataParallelProgram, ABucketIsReducedOnceAfterItsLastGradient) {
  const int norm = find(program, InstructionKind::gradient_norm, -1, -1);
  for (int b = 0; b < 3; ++b) {
    const int reduce = find(program, reduces_gradients, b);
    ASSERT_GE(reduce, 0);
    const Bucket bucket = buckets()[static_cast<std::size_t>(b)];
    for (const int segment : bucket.segments) {
      EXPECT_TRUE(ordered(program, find(program, InstructionKind::backward_weight, micro_batches() - 1, segment), reduce));
    }
    EXPECT_TRUE(ordered(program, reduce, norm));
    EXPECT_EQ(std::count_if(program.instructions.begin(), program.instructions.end(),
                            [&](const Instruction& i) { return reduces_gradients(i) && i.bucket == b; }),
              1);
  }
}

TEST_P(DataParallelProgram, OverlapLeavesTheRestOfBackwardFreeToRun) {
  const int reduce = find(program, reduces_gradients, 0);
  const int last = find(program, InstructionKind::backward_weight, micro_batches() - 1, 0);
  EXPECT_EQ(ordered(program, last, reduce), !overlap());
  EXPECT_FALSE(ordered(program, reduce, last));
}

TEST_P(DataParallelProgram, ABatchSlotIsLoadedAfterItsLastReader) {
  // Two steps run one after another: a wait for a later instruction means the previous step.
  std::map<int, int> last_reader;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].segment >= 0) last_reader[program.instructions[i].batch_slot] = static_cast<int>(i);
  }
  std::set<int> seen;
  for (const Instruction& i : program.instructions) {
    if (i.kind != InstructionKind::load_batch || !seen.insert(i.batch_slot).second || !overlap()) continue;
    EXPECT_EQ(i.waits, std::vector<int>{last_reader[i.batch_slot]});
  }
}

TEST_P(DataParallelProgram, ForwardWaitsForTheGatherOfItsWeights) {
  for (int b = 0; b < 3; ++b) {
    const int gather = find(program, gathers_weights, b);
    ASSERT_EQ(gather >= 0, sharded());
    if (!sharded() || !overlap()) continue;
    // Gathers are in the order of forward: the first segment of a bucket to run waits, those after it are behind it anyway.
    const std::vector<int> segments = buckets()[static_cast<std::size_t>(b)].segments;
    const int first = *std::min_element(segments.begin(), segments.end());
    const InstructionKind reader = first > 0 ? InstructionKind::norm : InstructionKind::forward;
    const auto& waits = program.at(find(program, reader, 0, first)).waits;
    EXPECT_NE(std::find(waits.begin(), waits.end(), gather), waits.end());
  }
}

TEST_P(DataParallelProgram, ResidualGradientsPassFromBlockToBlock) {
  for (int segment = 0; segment < 5; ++segment) {
    const Instruction& writer = program.at(find(program, InstructionKind::norm_backward, 0, segment + 1));
    const Instruction& reader = program.at(find(program, InstructionKind::backward_weight, 0, segment));
    EXPECT_EQ(input_gradient_buffer(program, writer), output_gradient_buffer(program, reader, segment));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DataParallelProgram,
                         testing::Combine(testing::Values(1, 2, 5), testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace plait::parallel
