// Work of segments against the usual counts for transformers.
#include "model/segment_work.h"

#include <gtest/gtest.h>

#include "model/parameters.h"

namespace plait::model {
namespace {

SegmentSizes sizes(int tensor, bool sequence_parallel, const std::string& mlp = "gelu", Recompute recompute = Recompute::none) {
  const Config config =
      parse_config("model: {layers: 3, hidden: 64, heads: 8, ffn: 192, vocab: 512, mlp: " + mlp +
                   "}\ndata: {tokenizer: random, sequence_length: 32}\ntrain: {steps: 1, global_batch: 4, micro_batch: 4}\n");
  return {.shape = resolve_shape(config.model, 512, 32, tensor),
          .split = {0, tensor, sequence_parallel},
          .micro_batch = {4, 32},
          .compute = DType::bf16,
          .recompute = recompute};
}

double products(const PassWork& work) { return work.matrix_flops; }

TEST(SegmentWork, IsTwoFlopsAParameterForwardAndFourBackward) {
  for (const std::string mlp : {"gelu", "swiglu"}) {
    const SegmentSizes s = sizes(1, false, mlp);
    double parameters = 0, forward = 0, backward = 0;
    for (const Parameter& p : model::parameters(s.shape)) {
      if (p.shape.rank() == 2 && p.name.find("position") == std::string::npos)
        parameters += static_cast<double>(p.shape.elements());
    }
    for (int segment = 0; segment < s.shape.segments(); ++segment) {
      const SegmentWork work = segment_work(s, segment);
      forward += products(work.forward);
      backward += products(work.backward_input) + products(work.backward_weight);
    }
    const double rows = 4 * 32;
    EXPECT_DOUBLE_EQ(forward, 2 * rows * parameters) << mlp << ": the tied embedding counts once, as the head";
    EXPECT_DOUBLE_EQ(backward, 4 * rows * parameters) << mlp;
    // Scores and weighted sum over the causal half: 2 · 2 · hidden · sequence / 2 a token.
    EXPECT_DOUBLE_EQ(segment_work(s, 1).forward.attention_flops, rows * 2 * 64 * 32);
  }
}

// A window of 8 in a sequence of 32: rows see 1, 2, .. 8, 8, ..; as an area 8 * 32 - 8 * 8 / 2 of the 32 * 32 / 2.
TEST(SegmentWork, AWindowHidesTheRest) {
  SegmentSizes s = sizes(1, false);
  const double all = segment_work(s, 1).forward.attention_flops;
  s.shape.window = 8, s.shape.window_layers = {1};
  EXPECT_DOUBLE_EQ(segment_work(s, 1).forward.attention_flops, all);
  EXPECT_DOUBLE_EQ(segment_work(s, 3).forward.attention_flops, all * (8 * 32 - 32) / 512);
  EXPECT_DOUBLE_EQ(segment_work(s, 3).backward_input.attention_flops, 2.5 * all * (8 * 32 - 32) / 512);
  s.shape.window = 32;
  EXPECT_DOUBLE_EQ(segment_work(s, 3).forward.attention_flops, all);
}

TEST(SegmentWork, RanksOfATensorGroupShareTheProducts) {
  for (int segment = 1; segment < 5; ++segment) {
    const SegmentWork whole = segment_work(sizes(1, false), segment), half = segment_work(sizes(2, true), segment);
    EXPECT_DOUBLE_EQ(2 * products(half.forward), products(whole.forward));
    EXPECT_DOUBLE_EQ(2 * half.forward.attention_flops, whole.forward.attention_flops);
    EXPECT_DOUBLE_EQ(2 * products(half.backward_input), products(whole.backward_input));
  }
}

TEST(SegmentWork, Fp8IsForProductsOfAttentionAndMlpAndRoundsTheirOperands) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    SegmentSizes s = sizes(1, false, "swiglu", recompute), with = s;
    with.fp8 = true;
    for (int segment = 0; segment < s.shape.segments(); ++segment) {
      const SegmentWork plain = segment_work(s, segment), fp8 = segment_work(with, segment);
      const bool rounds = has_norm(s.shape.kind(segment)) && has_output(s.shape.kind(segment));
      for (const auto& part : {&SegmentWork::forward, &SegmentWork::backward_input, &SegmentWork::backward_weight}) {
        EXPECT_DOUBLE_EQ(products(fp8.*part), products(plain.*part));
        EXPECT_DOUBLE_EQ((fp8.*part).fp8_flops, rounds ? products(plain.*part) : 0) << segment;
        EXPECT_EQ((plain.*part).fp8_flops, 0);
        const bool quantizes = rounds && part != &SegmentWork::backward_weight;  // backward_weight finds its operands quantized
        EXPECT_EQ((fp8.*part).memory_bytes > (plain.*part).memory_bytes, quantizes) << segment;
      }
      if (!rounds) continue;
      const bool mlp = s.shape.kind(segment) == SegmentKind::mlp;
      const double rows = 4 * 32, in = mlp ? 2 * 192 : 3 * 64, out = mlp ? 192 : 64;
      // The operand is read for its scale (unless a norm, SwiGLU or its derivative finds that), read again, and written in the
      // forms that are needed.
      const double forms = recompute == Recompute::none ? 2 : 1, scale = mlp ? 0 : 2;
      EXPECT_DOUBLE_EQ(fp8.forward.memory_bytes - plain.forward.memory_bytes,
                       rows * (64 * (2 + forms) + out * (scale + 2 + forms)));
      const double again = recompute == Recompute::none ? 0 : 64 * (2 + 2) + out * (2 + 1);
      EXPECT_DOUBLE_EQ(fp8.backward_input.memory_bytes - plain.backward_input.memory_bytes,
                       rows * (64 * (2 + 2) + in * (scale + 2 + 2) + again));
      // Products read one byte less per element of their operands.
      EXPECT_DOUBLE_EQ(plain.forward.matrix_bytes - fp8.forward.matrix_bytes, (rows + in) * 64 + (rows + 64) * out);
      EXPECT_DOUBLE_EQ(plain.backward_weight.matrix_bytes - fp8.backward_weight.matrix_bytes, rows * (64 + in + out + 64));
      if (recompute == Recompute::none) {
        EXPECT_DOUBLE_EQ(plain.backward_input.matrix_bytes - fp8.backward_input.matrix_bytes,
                         (rows + out) * 64 + (rows + 64) * in);
      }
      // The gradients of biases are summed during rounding.
      EXPECT_DOUBLE_EQ(plain.backward_weight.memory_bytes - fp8.backward_weight.memory_bytes, rows * (64 + in) * 2);
      EXPECT_LT(fp8.forward_last.matrix_flops, fp8.forward.matrix_flops);
      EXPECT_LT(fp8.input_last.matrix_flops, fp8.backward_input.matrix_flops);
    }
  }
}

TEST(SegmentWork, NormsOfHeadsAddNoProductsAndAreDoneAgainByRecomputation) {
  const auto work = [](bool qk_norm, Recompute recompute) {
    SegmentSizes s = sizes(1, false, "gelu", recompute);
    s.shape.qk_norm = qk_norm;
    return segment_work(s, 1);
  };
  const SegmentWork plain = work(false, Recompute::none), normed = work(true, Recompute::none);
  const double norm = 2.0 * 4 * 32 * 3 * 64 * 2;  // bf16, once in and once out
  EXPECT_DOUBLE_EQ(products(normed.forward), products(plain.forward));
  EXPECT_DOUBLE_EQ(products(normed.backward_input), products(plain.backward_input));
  EXPECT_DOUBLE_EQ(normed.forward.memory_bytes, plain.forward.memory_bytes + norm);
  EXPECT_GT(normed.backward_input.memory_bytes, plain.backward_input.memory_bytes);
  const SegmentWork again = work(true, Recompute::selective);
  EXPECT_DOUBLE_EQ(again.backward_input.memory_bytes, normed.backward_input.memory_bytes + norm);
  EXPECT_DOUBLE_EQ(work(false, Recompute::selective).backward_input.memory_bytes, plain.backward_input.memory_bytes);
}

TEST(SegmentWork, FullRecomputationComputesAllButTheLastProductAgain) {
  for (const auto& [segment, last_inner] : {std::pair{1, 64.0}, {2, 192.0}}) {
    const SegmentWork plain = segment_work(sizes(2, true), segment),
                      again = segment_work(sizes(2, true, "gelu", Recompute::full), segment);
    const double last = 2.0 * 4 * 32 * (last_inner / 2) * 64;
    EXPECT_DOUBLE_EQ(products(again.backward_input) - products(plain.backward_input), products(plain.forward) - last)
        << segment;
  }
}

}  // namespace
}  // namespace plait::model
