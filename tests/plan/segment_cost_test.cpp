// Collectives and seconds of a segment's work.
#include "plan/segment_cost.h"

#include <gtest/gtest.h>

#include "model/segments.h"
#include "parallel/rank_plan.h"
#include "plan/pass_seconds.h"

namespace plait::plan {
namespace {

model::SegmentSizes sizes(int tensor, bool sequence_parallel) {
  const Config config = parse_config(
      "model: {layers: 3, hidden: 64, heads: 8, ffn: 192, vocab: 512, mlp: gelu}\ndata: {tokenizer: random, sequence_length: "
      "32}\ntrain: {steps: 1, global_batch: 4, micro_batch: 4}\n");
  return {.shape = model::resolve_shape(config.model, 512, 32, tensor),
          .split = {0, tensor, sequence_parallel},
          .micro_batch = {4, 32},
          .compute = DType::bf16,
          .recompute = model::Recompute::none};
}

using List = std::vector<TensorCollective>;
List collectives_of(const model::PassSteps& steps) {
  List list;
  for (const model::PassStep& step : steps) {
    if (const auto& c = step.collective) list.push_back(tensor_collective(c->operation, c->elements, c->dtype));
  }
  return list;
}

// The collectives between two segments, in each pass.
TEST(SegmentCosts, CollectivesAreThoseOfMegatron) {
  constexpr double elements = 4 * 32 * 64;
  const TensorCollective scatter{Collective::reduce_scatter, 2 * elements}, gather{Collective::all_gather, 2 * elements};
  for (const auto& steps :
       {model::steps_before(sizes(2, true), 2, true, true), model::steps_behind_backward(sizes(2, true), 2, false)})
    EXPECT_EQ(collectives_of(steps), (List{scatter, gather}));
  for (const auto& steps :
       {model::steps_before(sizes(2, false), 2, true, true), model::steps_behind_backward(sizes(2, false), 2, false)})
    EXPECT_EQ(collectives_of(steps), (List{{Collective::all_reduce, 2 * elements}}));
  // Three numbers for each row of each rank's logits.
  EXPECT_EQ(collectives_of(model::forward_steps(sizes(2, true), 7)), (List{{Collective::all_gather, 2 * 4 * 32 * 3 * 4}}));
  // A rank by itself has no collectives.
  for (int segment = 1; segment < 8; ++segment) {
    const model::SegmentSizes alone = sizes(1, false);
    EXPECT_TRUE(collectives_of(model::steps_before(alone, segment, true, true)).empty());
    EXPECT_TRUE(collectives_of(model::forward_steps(alone, segment)).empty());
    EXPECT_TRUE(collectives_of(model::steps_behind_backward(alone, segment, false)).empty());
  }
}

// With FP8, inputs of attention and MLP are gathered with one byte per element, after their scale. Inputs of the head and the
// embedding are not, nor is a gradient from another stage.
TEST(SegmentCosts, OperandsAreGatheredInFp8) {
  model::SegmentSizes s = sizes(2, true);
  s.fp8 = true;
  const int head = s.shape.head_segment();
  constexpr double elements = 4 * 32 * 64;
  const TensorCollective sum{Collective::reduce_scatter, 2 * elements}, scale{Collective::all_reduce, 16};
  const List as_it_is{sum, {Collective::all_gather, 2 * elements}}, as_operand{sum, scale, {Collective::all_gather, elements}};
  EXPECT_EQ(collectives_of(model::steps_before(s, 1, true, true)), as_operand);
  EXPECT_EQ(collectives_of(model::steps_before(s, head, true, true)), as_it_is);
  EXPECT_EQ(collectives_of(model::steps_behind_backward(s, head, false)), as_operand);
  EXPECT_EQ(collectives_of(model::steps_behind_backward(s, 2, false)), as_operand);
  EXPECT_EQ(collectives_of(model::steps_behind_backward(s, 1, false)), as_it_is);
  EXPECT_EQ(collectives_of(model::steps_behind_backward(s, 2, true)), (List{sum})) << "sent to another stage";
  EXPECT_EQ(collectives_of(model::received_gradient_steps(s)), (List{{Collective::all_gather, 2 * elements}}));
  EXPECT_EQ(collectives_of(model::forward_steps(s, 1)), (List{scale}));
  EXPECT_EQ(collectives_of(model::backward_steps(s, 1)), (List{scale}));
}

// Ranks that share FP8 operands exchange their magnitudes, once in each direction of a half block.
TEST(PassSeconds, HaveTheExchangesOfFp8Scales) {
  const Machine machine{.profile = topology::nominal_profile("h200"), .calibration = {}};
  const auto difference = [&](const RingSpeed& slow, const RingSpeed& fast, bool fp8, SegmentParts PassSeconds::* pass,
                              model::SegmentKind kind) {
    model::SegmentSizes of = sizes(2, true);
    of.fp8 = fp8;
    const auto seconds = [&](const RingSpeed& ring) {
      AxisSizes mesh = single_rank;
      mesh[segment_axis] = of.split.size;
      return (pass_seconds(machine, of, mesh, {{segment_axis, ring}}, {}, false).*pass)[index_of(kind)];
    };
    return seconds(slow) - seconds(fast);
  };
  // The effect of a round's latency: an exchange that sums and gathers has 2 rounds for two ranks; the scale of the gathered
  // operand adds 2, and the exchange of scales 2 more. The attention segment here follows the embedding, whose gradient has no
  // scale.
  const RingSpeed fast{.gb_per_s = 100, .latency_us = 0}, slow{.gb_per_s = 100, .latency_us = 10};
  for (const auto kind : {model::SegmentKind::attention, model::SegmentKind::mlp}) {
    for (const auto pass : {&PassSeconds::forward, &PassSeconds::backward_input}) {
      const int scales = kind == model::SegmentKind::attention && pass == &PassSeconds::backward_input ? 1 : 2;
      EXPECT_NEAR(difference(slow, fast, true, pass, kind) - difference(slow, fast, false, pass, kind), scales * 2 * 10e-6,
                  1e-9);
    }
  }
  EXPECT_NEAR(difference(slow, fast, true, &PassSeconds::forward, model::SegmentKind::head),
              difference(slow, fast, false, &PassSeconds::forward, model::SegmentKind::head), 1e-12);
}

TEST(DeviceProfile, ALargeProductTakesItsFlopsAndASmallOneTheDevicesPatience) {
  const topology::DeviceProfile profile = topology::nominal_profile("h200");
  model::PassWork large{.matrix_flops = 1e15, .matrix_products = 1}, small{.matrix_flops = 1e3, .matrix_products = 1};
  EXPECT_NEAR(seconds_of(large, profile, DType::bf16), 1e15 / profile.half_flops, 1e-4);
  EXPECT_NEAR(seconds_of(small, profile, DType::bf16), profile.matrix_seconds, 1e-8);
  EXPECT_GT(seconds_of(large, profile, DType::f32), 5 * seconds_of(large, profile, DType::bf16));
}

}  // namespace
}  // namespace plait::plan
