// Programs with one thing wrong are refused, for that reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "core/error.h"
#include "parallel/collectives.h"
#include "parallel/program/program_waits.h"
#include "parallel/program_sets.h"
#include "parallel/proof/validator.h"

namespace plait::parallel {
namespace {

using enum InstructionKind;
using testing::AllOf;
using testing::HasSubstr;

// A valid set from which tests take things. Every rank has a program of its own.
class Editor {
 public:
  explicit Editor(const SetSpec& spec) : set(make_set(spec, true, false)) {}

  ProgramSet set;

  RankProgram& of(int rank) { return set.programs[static_cast<std::size_t>(set.program_of[static_cast<std::size_t>(rank)])]; }
  Program& program(int rank) { return of(rank).program; }
  Chunk& chunk(int rank, int index = 0) { return program(rank).chunks[static_cast<std::size_t>(index)]; }
  Instruction& at(int rank, int index) { return program(rank).instructions[static_cast<std::size_t>(index)]; }

  // The first instruction of this kind, micro-batch and segment (for messages: chunk; for reductions: bucket); -1 is any.
  int find(int rank, InstructionKind kind, int micro_batch = -1, int which = -1) {
    const auto& list = program(rank).instructions;
    const auto it = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
      const int what = i.bucket >= 0 ? i.bucket : i.segment >= 0 ? i.segment : i.chunk;
      return i.kind == kind && (micro_batch < 0 || i.micro_batch == micro_batch) && (which < 0 || what == which);
    });
    if (it == list.end()) throw std::logic_error("nothing there to break: " + to_string(kind));
    return static_cast<int>(it - list.begin());
  }
  Instruction& get(int rank, InstructionKind kind, int micro_batch = -1, int which = -1) {
    return at(rank, find(rank, kind, micro_batch, which));
  }
  // The same for a collective.
  using Which = std::function<bool(const Instruction&)>;
  int find(int rank, const Which& is, int micro_batch = -1, int which = -1) {
    const auto& list = program(rank).instructions;
    const auto it = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
      const int what = i.bucket >= 0 ? i.bucket : i.segment;
      return is(i) && (micro_batch < 0 || i.micro_batch == micro_batch) && (which < 0 || what == which);
    });
    if (it == list.end()) throw std::logic_error("no such collective to break");
    return static_cast<int>(it - list.begin());
  }
  Instruction& get(int rank, const Which& is, int micro_batch = -1, int which = -1) {
    return at(rank, find(rank, is, micro_batch, which));
  }

  // Removes an instruction or, unless `to` is -1, moves it past the one at that index. Waits go along.
  void move(int rank, int from, int to) {
    auto& list = program(rank).instructions;
    std::vector<int> order(list.size());
    std::iota(order.begin(), order.end(), 0);
    order.erase(order.begin() + from);
    if (to >= 0) order.insert(order.begin() + to, from);
    std::vector<Instruction> moved;
    for (const int n : order) moved.push_back(list[static_cast<std::size_t>(n)]);
    for (Instruction& i : moved) {
      std::erase_if(i.waits, [&](int w) { return std::find(order.begin(), order.end(), w) == order.end(); });
      for (int& w : i.waits) w = static_cast<int>(std::find(order.begin(), order.end(), w) - order.begin());
    }
    list = std::move(moved);
  }
  void remove(int rank, int index) { move(rank, index, -1); }

  // Derives the waits anew, so that only the tested part is wrong.
  void derive(int rank) {
    for (Instruction& i : program(rank).instructions) i.waits.clear();
    derive_waits(program(rank), of(rank).buckets);
  }

  // Expects this problem of this rank to be the first.
  void expect(int rank, const testing::Matcher<std::string>& words) {
    const std::vector<ProgramProblem> problems = validate(set);
    ASSERT_FALSE(problems.empty());
    EXPECT_THAT(to_string(problems.front(), set), words);
    EXPECT_EQ(problems.front().rank, rank) << problems.front().words;
  }
};

using Which = Editor::Which;
Which over(Group group) {
  return [=](const Instruction& i) { return reduces_gradients(i, group); };
}
Which agrees(model::PassTensor scale) {
  return [=](const Instruction& i) { return agrees_on(i, scale); };
}
Which brings(model::PassTensor tensor) {
  return [=](const Instruction& i) { return agrees_on(i, tensor) && i.collective.operation == Operation::all_gather; };
}
const Which reduction = over(groups::replicas), scalars = sums_scalars, gather = gathers_weights, scales = shares_weight_scales,
            meets = is_barrier;

const SetSpec one_f_one_b{.schedule = {ScheduleKind::one_f_one_b, 2, 1, 4}};
const SetSpec two_replicas{.schedule = {ScheduleKind::one_f_one_b, 1, 1, 3}, .data = 2, .bucket_bytes = 1 << 12};
const SetSpec sharded{.schedule = {ScheduleKind::one_f_one_b, 1, 1, 3}, .data = 2, .zero = 1, .bucket_bytes = 1 << 12};
const SetSpec sharded_gradients{
    .schedule = {ScheduleKind::one_f_one_b, 1, 1, 3}, .data = 2, .zero = 2, .bucket_bytes = 1 << 12};

TEST(BrokenProgram, Structure) {
  {
    Editor e(one_f_one_b);
    e.get(0, forward, 2, 0).stream = 99;
    e.expect(0, AllOf(HasSubstr("forward micro-batch 2 segment 0"), HasSubstr("is on stream 99 of")));
  }
  {
    Editor e(one_f_one_b);
    e.get(1, send_gradient, 1).stream = 0;
    e.expect(1, AllOf(HasSubstr("send_gradient micro-batch 1"), HasSubstr("cannot be on the stream 'compute'")));
  }
  {
    Editor e(one_f_one_b);
    e.get(1, update).waits.push_back(12345);
    e.expect(1, AllOf(HasSubstr("update"), HasSubstr("waits for instruction 12345 of")));
  }
  {
    Editor e(one_f_one_b);
    e.get(0, forward, 3, 0).micro_batch = 4;
    e.expect(0, AllOf(HasSubstr("forward micro-batch 4 segment 0"), HasSubstr("does not belong to this rank's step")));
  }
  {
    Editor e(one_f_one_b);
    ++e.chunk(1).first_segment;
    e.expect(1, HasSubstr("stage 1 has segments 2 to 5 and should begin with segment 1"));
  }
  {
    Editor e(one_f_one_b);
    e.chunk(0).next_rank = -1;
    e.expect(0, HasSubstr("stage 0 names other ranks as its neighbours"));
  }
  {
    Editor e(one_f_one_b);
    std::erase_if(e.of(1).buckets, [](const Bucket& b) { return b.partial.contains(Axis::pipeline); });
    e.expect(1, HasSubstr("no bucket sums the tied table's gradients over the first and the last stage"));
  }
}

TEST(BrokenProgram, MoreInFlightThanDeclaredSlots) {
  Editor e(one_f_one_b);
  ASSERT_EQ(e.chunk(0).activation_slots, 2);
  e.chunk(0).activation_slots = 1;
  e.expect(0, AllOf(HasSubstr("forward micro-batch 1 segment 0"), HasSubstr("uses the activations of segment 0, slot 1"),
                    HasSubstr("declares 1 slots")));
}

TEST(BrokenProgram, MissingInstructions) {
  const auto without = [](const SetSpec& spec, int rank, const auto& kind, int micro_batch, int which, const char* name) {
    Editor e(spec);
    e.remove(rank, e.find(rank, kind, micro_batch, which));
    e.expect(rank, AllOf(HasSubstr(name), HasSubstr("is missing")));
  };
  without(one_f_one_b, 0, backward_weight, 2, 0, "backward_weight micro-batch 2 segment 0");
  without(one_f_one_b, 1, send_gradient, 3, -1, "send_gradient micro-batch 3 chunk 0");
  without(one_f_one_b, 1, load_batch, 3, -1, "load_batch micro-batch 3");
  without({.schedule = {ScheduleKind::one_f_one_b, 3, 1, 4}, .documents = Documents::separate}, 1, load_batch, 2, -1,
          "load_batch micro-batch 2");
  without(two_replicas, 1, reduction, -1, 1, "sum of gradients bucket 1 over the data group");
  without(sharded_gradients, 0, reduction, 1, 0, "reduce_scatter of gradients micro-batch 1 bucket 0");
  without(sharded, 0, gather, -1, 1, "all_gather of weights bucket 1");
  without(one_f_one_b, 0, over(groups::tied), -1, -1, "sum of gradients bucket 1 over the tied group");
  without(one_f_one_b, 0, meets, -1, -1, "barrier over the tied group");
  without({.schedule = {ScheduleKind::one_f_one_b, 1, 1, 2}, .tensor = 2}, 1, over(groups::tensor), -1, -1,
          "over the tensor group");
  without(one_f_one_b, 1, scalars, -1, -1, "sum of scalars");
}

TEST(BrokenProgram, AttentionThatDoesNotKnowItsDocuments) {
  for (const InstructionKind kind : {forward, backward_input}) {
    Editor e({.schedule = {ScheduleKind::one_f_one_b, 3, 1, 4}, .documents = Documents::separate, .even = true});
    Instruction& i = e.get(1, kind, 2, 3);
    ASSERT_EQ(e.set.kind(3), model::SegmentKind::attention);
    i.batch_slot = -1;
    e.derive(1);
    e.expect(1, AllOf(HasSubstr("micro-batch 2 segment 3"), HasSubstr("has no batch")));
  }
}

TEST(BrokenProgram, DoubleForward) {
  Editor e(one_f_one_b);
  const Instruction again = e.get(1, forward, 2, 1);
  e.program(1).instructions.push_back(again);
  e.expect(1, AllOf(HasSubstr("forward micro-batch 2 segment 1"), HasSubstr("runs a second time")));
}

TEST(BrokenProgram, ForwardAfterBackward) {
  Editor e(one_f_one_b);
  e.move(1, e.find(1, forward, 1, 5), e.find(1, backward_weight, 1, 5));
  e.derive(1);
  e.expect(1, AllOf(HasSubstr("loss micro-batch 1 segment 5"), HasSubstr("needs micro-batch 1 in the activations of segment 5"),
                    HasSubstr("it comes later, from instruction"), HasSubstr("forward micro-batch 1 segment 5")));
}

TEST(BrokenProgram, WeightPartBeforeInputPart) {
  Editor e({.schedule = {ScheduleKind::zb_h1, 2, 1, 4}});
  e.move(1, e.find(1, backward_weight, 1, 2), e.find(1, backward_input, 1, 2));
  e.derive(1);
  e.expect(1, AllOf(HasSubstr("backward_weight micro-batch 1 segment 2"), HasSubstr("needs micro-batch 1 in the")));
}

TEST(BrokenProgram, ReuseOfALiveSlot) {
  Editor e({.schedule = {ScheduleKind::gpipe, 2, 1, 3}});
  for (Instruction& i : e.program(0).instructions) {
    if (i.slot >= 0 && i.micro_batch == 2) i.slot = i.input_slot = e.get(0, forward, 0, 0).slot;
  }
  e.derive(0);
  e.expect(0, AllOf(HasSubstr("forward micro-batch 2 segment 0"), HasSubstr("overwrites the activations of segment 0, slot 0"),
                    HasSubstr("whose micro-batch 0 is still needed by instruction")));
}

TEST(BrokenProgram, WrongMicroBatchIsSent) {
  Editor e({.schedule = {ScheduleKind::gpipe, 2, 1, 3}});
  e.get(0, send_activation, 1).slot = e.get(0, forward, 0, 0).slot;
  e.derive(0);
  e.expect(
      0, AllOf(HasSubstr("send_activation micro-batch 1"), HasSubstr("needs micro-batch 1 in the output of segment 0, slot 0"),
               HasSubstr("which holds micro-batch 0")));
}

TEST(BrokenProgram, GradientOfAnotherMicroBatch) {
  Editor e({.schedule = {ScheduleKind::interleaved, 2, 2, 4}});
  Instruction& i = e.get(0, backward_input, 2, 6);
  ASSERT_EQ(output_gradient_buffer(e.program(0), i, 6).kind, BufferKind::received_gradient);
  i.gradient_in = (i.gradient_in + 1) % e.chunk(0, 1).gradient_in_slots;
  e.derive(0);
  e.expect(0, AllOf(HasSubstr("backward_input micro-batch 2 segment 6"),
                    HasSubstr("needs micro-batch 2 in the received gradient of chunk 1")));
}

TEST(BrokenProgram, BatchesOutOfOrder) {
  Editor e(two_replicas);
  const auto swap = [&](int micro_batch, int with) {
    for (Instruction& i : e.program(1).instructions) {
      if (i.micro_batch == micro_batch) i.micro_batch = -2 - with;
    }
  };
  swap(1, 2), swap(2, 1);
  for (Instruction& i : e.program(1).instructions) i.micro_batch = i.micro_batch < -1 ? -2 - i.micro_batch : i.micro_batch;
  e.expect(1, AllOf(HasSubstr("load_batch micro-batch 2"),
                    HasSubstr("comes after micro-batch 0; batches are loaded in ascending order")));
}

TEST(BrokenProgram, BucketReducedBeforeItsLastMicroBatch) {
  Editor e(two_replicas);
  e.move(0, e.find(0, reduction, -1, 0), e.find(0, forward, 2, 0));
  e.derive(0);
  e.expect(0, AllOf(HasSubstr("sum of gradients bucket 0"), HasSubstr("which 2 of 3 contributions have reached")));
}

TEST(BrokenProgram, ReductionOfAnotherMicroBatch) {
  Editor e(sharded_gradients);
  std::swap(e.get(0, reduction, 0, 0).micro_batch, e.get(0, reduction, 1, 0).micro_batch);
  e.expect(0, AllOf(HasSubstr("reduce_scatter of gradients micro-batch 1 bucket 0"), HasSubstr("the last of micro-batch 0")));
}

TEST(BrokenProgram, PlaceOfUnreducedGradientsIsReused) {
  Editor e({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 3}, .zero = 2, .bucket_bytes = 1});
  // Put the first bucket's reduction off until the next one in its place is written.
  const std::vector<Bucket>& buckets = e.of(1).buckets;
  int other = 1;
  while (buckets[static_cast<std::size_t>(other)].place != buckets[0].place) ++other;
  e.move(1, e.find(1, reduction, 0, 0), e.find(1, reduction, 0, other));
  e.derive(1);
  e.expect(1, HasSubstr("where those of bucket 0 are, which have not been reduced"));
}

TEST(BrokenProgram, Accumulation) {
  {
    Editor e(one_f_one_b);
    e.get(1, backward_weight, 0, 2).accumulate = true;
    e.expect(1, AllOf(HasSubstr("backward_weight micro-batch 0 segment 2"), HasSubstr("adds to the gradients"),
                      HasSubstr("must overwrite")));
  }
  {
    Editor e(one_f_one_b);
    e.get(1, norm_backward, 2, 2).accumulate = false;
    e.expect(1, AllOf(HasSubstr("norm_backward micro-batch 2 segment 2"), HasSubstr("overwrites the gradients"),
                      HasSubstr("micro-batch 1 has been added")));
  }
  {
    Editor e(two_replicas);
    e.get(0, backward_weight, 0, 0).accumulate_tokens = false;  // the tied head has written before
    e.expect(0, AllOf(HasSubstr("backward_weight micro-batch 0 segment 0"),
                      HasSubstr("overwrites the gradients of the token table")));
  }
  {
    Editor e(sharded_gradients);
    e.get(0, reduction, 2, 0).accumulate = false;
    e.expect(0, AllOf(HasSubstr("reduce_scatter of gradients micro-batch 2 bucket 0"),
                      HasSubstr("overwrites the sum of 2 micro-batches")));
  }
  {
    Editor e(two_replicas);
    e.get(0, loss, 1, e.set.head()).accumulate = false;
    e.expect(0, HasSubstr("overwrites the losses, to which micro-batch 0 has been added"));
  }
}

TEST(BrokenProgram, EndOfTheStepOutOfOrder) {
  {
    Editor e(two_replicas);
    const int last = static_cast<int>(e.of(1).buckets.size()) - 1;
    e.move(1, e.find(1, reduction, -1, last), e.find(1, gradient_norm));
    e.derive(1);
    e.expect(1, AllOf(HasSubstr("gradient_norm"),
                      HasSubstr("runs before bucket " + std::to_string(last) + " is reduced over the data group")));
  }
  {
    Editor e(one_f_one_b);
    e.move(0, e.find(0, over(groups::tied)), e.find(0, gradient_norm));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("gradient_norm"), HasSubstr("is summed over the tied group")));
  }
  {
    Editor e(one_f_one_b);
    const int tied = e.at(0, e.find(0, over(groups::tied))).bucket;
    e.move(0, e.find(0, over(groups::tied)), e.find(0, reduction, -1, tied));
    e.derive(0);
    e.expect(0,
             AllOf(HasSubstr("over the tied group"), HasSubstr("runs before the bucket has been reduced over the data group")));
  }
  {
    Editor e(one_f_one_b);
    e.move(0, e.find(0, over(groups::tied)), e.find(0, meets));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("over the tied group"), HasSubstr("runs before the barrier of the stages")));
  }
  {
    Editor e(two_replicas);
    e.move(0, e.find(0, update), e.find(0, scalars));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("update"), HasSubstr("runs before the sum of scalars of its step")));
  }
  {
    Editor e(sharded);
    e.move(0, e.find(0, gather, -1, 0), e.find(0, update));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("all_gather of weights bucket 0"), HasSubstr("runs before the update of its step")));
  }
}

// The effect of the missing gather above on the next step.
TEST(BrokenProgram, ForwardReadsShardsFromBeforeTheUpdate) {
  Editor e(sharded);
  e.remove(0, e.find(0, gather, -1, 1));
  const std::vector<ProgramProblem> problems = validate(e.set);
  EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [&](const ProgramProblem& p) {
    return p.instruction >= 0 && e.at(0, p.instruction).kind == forward && p.words.find("reads the weights of bucket 1") == 0;
  }));
}

// A set with FP8 operands.
const SetSpec quantized{
    .schedule = {ScheduleKind::one_f_one_b, 1, 1, 3}, .data = 2, .zero = 1, .bucket_bytes = 1 << 12, .fp8 = true};
const SetSpec shared_operands{
    .schedule = {ScheduleKind::one_f_one_b, 1, 1, 3}, .tensor = 2, .bucket_bytes = 1 << 12, .fp8 = true};

TEST(BrokenProgram, WeightsAreQuantizedBeforeTheyAreThere) {
  {
    Editor e(quantized);
    const int bucket = e.get(0, scale_weights).bucket;
    e.move(0, e.find(0, scale_weights, -1, bucket), e.find(0, update));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("scale_weights bucket"), HasSubstr("runs before the update of its step")));
  }
  {
    Editor e(quantized);
    const int bucket = e.get(0, scale_weights).bucket;
    e.move(0, e.find(0, scale_weights, -1, bucket), e.find(0, gather, -1, bucket));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("scale_weights bucket"), HasSubstr("before an all_gather has brought other ranks' shards")));
  }
  {
    Editor e(quantized);
    const int bucket = e.get(0, scale_weights).bucket;
    e.move(0, e.find(0, quantize_weights, -1, bucket), e.find(0, scale_weights, -1, bucket));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("quantize_weights bucket"), HasSubstr("runs before the scale_weights of its step")));
  }
}

TEST(BrokenProgram, ForwardReadsWeightsQuantizedBeforeTheUpdate) {
  Editor e(quantized);
  const int bucket = e.get(0, quantize_weights).bucket;
  e.remove(0, e.find(0, quantize_weights, -1, bucket));
  const std::vector<ProgramProblem> problems = validate(e.set);
  EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [&](const ProgramProblem& p) {
    return p.instruction >= 0 && e.at(0, p.instruction).kind == forward &&
           p.words.find("reads the quantized weights of bucket " + std::to_string(bucket) + ", which are from before") == 0;
  }));
}

TEST(BrokenProgram, ScalesThatRanksHaveNotAgreedOn) {
  {
    Editor e(shared_operands);
    e.move(1, e.find(1, agrees(model::PassTensor::activation_scale), 1, 2), e.find(1, forward, 2, 3));
    e.derive(1);
    e.expect(1, AllOf(HasSubstr("forward micro-batch 1 segment 2, part 1"), HasSubstr("not complete yet")));
  }
  {
    Editor e(shared_operands);
    e.move(0, e.find(0, agrees(model::PassTensor::gradient_scale), 1, 1), e.find(0, backward_weight, 1, 1));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("backward_input micro-batch 1 segment 1, part 1"), HasSubstr("not complete yet")));
  }
  {
    Editor e(shared_operands);
    const int bucket = e.get(0, quantize_weights).bucket;
    e.move(0, e.find(0, quantize_weights, -1, bucket), e.find(0, scales, -1, bucket));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("quantize_weights bucket"), HasSubstr("have not agreed on")));
  }
  Editor e(shared_operands);
  e.remove(0, e.find(0, agrees(model::PassTensor::activation_scale), 0, 1));
  e.derive(0);
  e.expect(0, AllOf(HasSubstr("forward micro-batch 0 segment 1, part 1"), HasSubstr("without the scale of the tensor group")));
}

TEST(BrokenProgram, DroppedWaits) {
  const auto without_waits = [](const SetSpec& spec, const auto& kind, int micro_batch,
                                const testing::Matcher<std::string>& words) {
    Editor e(spec);
    e.get(0, kind, micro_batch).waits.clear();
    e.expect(0, AllOf(HasSubstr("is not made to wait for instruction"), words));
  };
  without_waits(one_f_one_b, send_activation, 1,
                AllOf(HasSubstr("forward micro-batch 1 segment 0"), HasSubstr("both use 'output of segment 0, slot 1'")));
  without_waits(two_replicas, load_batch, 0, AllOf(HasSubstr("of the step before"), HasSubstr("both use 'batch slot 0'")));
  without_waits(two_replicas, reduction, -1, HasSubstr("both use 'gradients in place 0'"));
  without_waits(two_replicas, update, -1, HasSubstr("both use 'the step's scalars'"));
}

TEST(BrokenProgram, SwappedReceives) {
  Editor e(one_f_one_b);
  Instruction &first = e.get(1, receive_activation, 1), &second = e.get(1, receive_activation, 2);
  std::swap(first.micro_batch, second.micro_batch);
  std::swap(first.input_slot, second.input_slot);
  const std::vector<ProgramProblem> problems = validate(e.set);
  EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [](const ProgramProblem& p) {
    return p.rank == 1 && p.words.find(
                              "receives the output of stage 0, micro-batch 2, but what rank 0 sends next is the output "
                              "of stage 0, micro-batch 1") == 0;
  }));
}

TEST(BrokenProgram, SendsInAnotherOrderThanReceives) {
  // The order is right for rank 0 alone, which computes micro-batch 2 before 1.
  Editor e({.schedule = {ScheduleKind::gpipe, 2, 1, 3}});
  e.move(0, e.find(0, load_batch, 2), e.find(0, forward, 1, 0));
  e.move(0, e.find(0, forward, 2, 0), e.find(0, forward, 1, 0));
  e.move(0, e.find(0, send_activation, 2), e.find(0, send_activation, 1));
  e.derive(0);
  e.expect(1, AllOf(HasSubstr("receive_activation micro-batch 1"),
                    HasSubstr("what rank 0 sends next is the output of stage 0, micro-batch 2")));
}

TEST(BrokenProgram, CollectivesInAnotherOrderOnOneRank) {
  Editor e(sharded);
  const int first = e.find(1, gather, -1, 1), second = e.find(1, gather, -1, 0);
  std::swap(e.at(1, first).bucket, e.at(1, second).bucket);
  std::swap(e.at(1, first).collective, e.at(1, second).collective);
  e.derive(1);
  e.expect(1, AllOf(HasSubstr("all_gather of weights bucket 0"), HasSubstr("meets instruction"),
                    HasSubstr("all_gather of weights bucket 1 over the data group on rank 0 of the data group")));
}

TEST(BrokenProgram, BucketsOfOtherSizes) {
  Editor e(one_f_one_b);
  for (Bucket& bucket : e.of(1).buckets) {
    if (bucket.partial.contains(Axis::pipeline)) bucket.range.count += 128;
  }
  e.expect(1, AllOf(HasSubstr("over the tied group"), HasSubstr("on rank 0 of the tied group")));
}

TEST(BrokenProgram, CollectivesOfOneGroupOnTwoStreams) {
  Editor e(two_replicas);
  for (const int rank : {0, 1}) {
    e.get(rank, reduction, -1, 0).stream = 0;
    e.derive(rank);
  }
  e.expect(0, HasSubstr("is on another stream than instruction"));
}

TEST(BrokenProgram, TensorRanksExchangeInAnotherOrder) {
  Editor e({.schedule = {ScheduleKind::gpipe, 1, 1, 3}, .tensor = 2, .recompute = true});
  // The computations of two segments may be in another order on another rank; what the ranks tell each other may not.
  const auto recomputes = [](InstructionKind kind) {
    return [=](const Instruction& i) {
      return i.kind == kind && (kind == norm ? i.recomputed : i.collective.destination.kind == BufferKind::norm_again);
    };
  };
  const auto sum = agrees(model::PassTensor::norm_gradient);
  e.move(1, e.find(1, recomputes(norm), 0, 1), e.find(1, sum, 0, 3));
  e.move(1, e.find(1, recomputes(collective), 0, 1), e.find(1, sum, 0, 3));
  e.derive(1);
  e.expect(1, AllOf(HasSubstr("recomputed all_gather of norm micro-batch 0 segment 1"), HasSubstr("meets instruction"),
                    HasSubstr("rank 0 of the tensor group")));
}

TEST(BrokenProgram, SegmentReadsRowsThatWereNotGathered) {
  {
    Editor e({.schedule = {ScheduleKind::gpipe, 2, 1, 3}, .tensor = 2});
    e.move(0, e.find(0, brings(model::PassTensor::input_gradient), 1, e.chunk(0).end_segment),
           e.find(0, backward_weight, 1, e.chunk(0).last_segment()));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("micro-batch 1 segment 0"), HasSubstr("in the received gradient of chunk 0"),
                      HasSubstr("not complete yet")));
  }
  {
    Editor e({.schedule = {ScheduleKind::gpipe, 1, 1, 3}, .tensor = 2});
    e.move(0, e.find(0, brings(model::PassTensor::statistics), 0), e.find(0, loss, 0));
    e.derive(0);
    e.expect(0, AllOf(HasSubstr("loss micro-batch 0"), HasSubstr("statistics of logits"), HasSubstr("not complete yet")));
  }
}

// Each rank finishes sending before it receives, as with one stream for both. That works only if messages are buffered on the
// way.
TEST(BrokenProgram, DeadlockOfUnbufferedMessages) {
  Editor e(one_f_one_b);
  const auto receive_after_send = [&](int rank, InstructionKind receive, int received, InstructionKind send, int sent) {
    e.move(rank, e.find(rank, receive, received), e.find(rank, send, sent));
    e.derive(rank);
    e.get(rank, receive, received).waits.push_back(e.find(rank, send, sent));
  };
  receive_after_send(0, receive_gradient, 0, send_activation, 1);
  receive_after_send(1, receive_activation, 1, send_gradient, 0);
  e.expect(0, AllOf(HasSubstr("receive_gradient micro-batch 0 chunk 0: deadlock: waits for instruction"),
                    HasSubstr("send_activation micro-batch 1 chunk 0, waits for rank 1 to receive it; rank 1, instruction"),
                    HasSubstr("receive_activation micro-batch 1 chunk 0, waits for instruction"),
                    HasSubstr("send_gradient micro-batch 0 chunk 0, waits for rank 0 to receive it")));
}

TEST(BrokenProgram, DeadlockOfACollectiveAndAMessage) {
  // Rank 0 takes part in the tied sum when it has the gradient that rank 1 sends after it.
  Editor e({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 1}});
  e.move(1, e.find(1, send_gradient, 0), e.find(1, over(groups::tied)));
  e.derive(1);
  e.get(1, send_gradient, 0).waits.push_back(e.find(1, over(groups::tied)));
  e.expect(0, AllOf(HasSubstr("deadlock"), HasSubstr("waits for rank 1 to send it"),
                    HasSubstr("over the tied group, waits for rank 0 to take part in it")));
}

TEST(BrokenProgram, IsShownInAPictureOfTheStep) {
  Editor e(one_f_one_b);
  ASSERT_NO_THROW(require_valid(e.set));
  e.get(1, backward_weight, 2, 2).accumulate = false;
  try {
    require_valid(e.set);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("invalid program: rank 1 (pipeline 1, data 0, tensor 0), instruction"));
    EXPECT_THAT(error.what(),
                HasSubstr("backward_weight micro-batch 2 segment 2: overwrites the gradients of the segment in bucket"));
    EXPECT_THAT(error.what(), HasSubstr("rank 0  F0 F1 .. .. B0 --"));
    EXPECT_THAT(error.what(), HasSubstr("[B2 --]"));
  }
}

}  // namespace
}  // namespace plait::parallel
