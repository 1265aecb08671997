// Collectives and seconds of a segment's work.
#include "plan/segment_cost.h"

#include <gtest/gtest.h>

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

// Of what lies between two segments, in each pass.
TEST(SegmentCosts, CollectivesAreThoseOfMegatron) {
  using enum parallel::InstructionKind;
  const parallel::Exchange with{.sum = true, .norm = true, .gather = true}, without{.sum = true, .norm = true};
  for (const auto kind : {exchange_forward, exchange_backward}) {
    const CollectiveCounts split = collectives_of(sizes(2, true), kind, with);
    EXPECT_EQ(split.gathers, 1);
    EXPECT_EQ(split.scatters, 1);
    EXPECT_EQ(split.all_reduces, 0);
    EXPECT_EQ(split.bytes, 4 * 32 * 64 * 2);
    const CollectiveCounts whole = collectives_of(sizes(2, false), kind, without);
    EXPECT_EQ(whole.gathers + whole.scatters, 0);
    EXPECT_EQ(whole.all_reduces, 1);
  }
  // Three numbers of each row of each rank's logits.
  EXPECT_EQ(collectives_of(sizes(2, true), exchange_loss, {}).bytes, 2 * 4 * 32 * 3 * 4);
}

// Ranks that share FP8 operands tell each other their magnitudes, once in each direction of a half block.
TEST(PassSeconds, HaveTheExchangesOfFp8Scales) {
  const Machine machine{.profile = topology::nominal_profile("h200"), .calibration = {}};
  const auto difference = [&](const RingSpeed& slow, const RingSpeed& fast, bool fp8, SegmentParts PassSeconds::* pass,
                              model::SegmentKind kind) {
    model::SegmentSizes of = sizes(2, true);
    of.fp8 = fp8;
    const auto seconds = [&](const RingSpeed& ring) {
      return (pass_seconds(machine, of, ring, {}, false).*pass)[index_of(kind)];
    };
    return seconds(slow) - seconds(fast);
  };
  // What a round's latency adds: an exchange that sums and gathers has 2 rounds of two ranks, one of scales 2 more.
  const RingSpeed fast{.gb_per_s = 100, .latency_us = 0}, slow{.gb_per_s = 100, .latency_us = 10};
  for (const auto kind : {model::SegmentKind::attention, model::SegmentKind::mlp}) {
    for (const auto pass : {&PassSeconds::forward, &PassSeconds::backward_input}) {
      EXPECT_NEAR(difference(slow, fast, true, pass, kind) - difference(slow, fast, false, pass, kind), 2 * 10e-6, 1e-9);
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
