#include <gtest/gtest.h>

#include "model/model_flops.h"

namespace plait::model {
namespace {

ModelShape flops_gpt2() {
  ModelShape shape;
  shape.layers = 12;
  shape.hidden = 768;
  shape.heads = shape.kv_heads = 12;
  shape.head_dim = 64;
  shape.ffn = 3072;
  shape.vocab = 50257;
  shape.padded_vocab = 50304;
  shape.max_sequence = 1024;
  return shape;
}

ModelShape qwen(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.kv_heads = 2;
  shape.head_dim = hidden / heads;
  shape.ffn = ffn;
  shape.vocab = shape.padded_vocab = 151936;
  shape.mlp = Mlp::swiglu;
  shape.position = Position::rope;
  return shape;
}

TEST(ModelFlops, Gpt2) {
  const FlopTerms terms = flop_terms(flops_gpt2(), 1024);
  EXPECT_EQ(terms.matrix_parameters, 12 * 12 * 768 * 768 + 50304 * 768);
  EXPECT_DOUBLE_EQ(model_flops_per_token(terms), 6.0 * (84'934'656 + 38'633'472) + 6.0 * 12 * 768 * 1024);
  EXPECT_NEAR(model_flops_per_token(terms), 0.798e9, 0.0005e9);
}

TEST(ModelFlops, QwenAgreesWithItsPeer) {
  EXPECT_NEAR(model_flops_per_token(flop_terms(qwen(24, 896, 14, 4864), 1024)), 3.10e9, 0.005e9);
  EXPECT_NEAR(model_flops_per_token(flop_terms(qwen(28, 1536, 12, 8960), 1024)), 9.53e9, 0.005e9);
}

TEST(ModelFlops, CountsWhatAWindowLeaves) {
  ModelShape shape = flops_gpt2();
  const double all = model_flops_per_token(flop_terms(shape, 1024));
  shape.window = 256, shape.window_layers = {0, 5, 11};
  const double keys = 256 - 256.0 * 256 / 2048;
  EXPECT_DOUBLE_EQ(model_flops_per_token(flop_terms(shape, 1024)), all - 12.0 * 768 * 3 * (512 - keys));
  shape.window = 4096;
  EXPECT_DOUBLE_EQ(model_flops_per_token(flop_terms(shape, 1024)), all);
}

TEST(ModelFlops, AnUntiedInputEmbeddingIsNotCounted) {
  ModelShape shape = qwen(24, 896, 14, 4864);
  const double tied = model_flops_per_token(flop_terms(shape, 1024));
  shape.tie_embeddings = false;
  EXPECT_DOUBLE_EQ(model_flops_per_token(flop_terms(shape, 1024)), tied);
}

TEST(ModelFlops, Utilization) {
  // llm.q's Qwen2.5-1.5B on one H200: 61.3k tokens/s, 584 TFLOP/s, 59 % of the data sheet.
  EXPECT_NEAR(model_flops_utilization(9.53e9, 61'300, 1, 989.4e12), 0.59, 0.005);
  EXPECT_NEAR(model_flops_utilization(9.53e9, 241'000, 4, 989.4e12), 0.58, 0.005);
}

TEST(ModelFlops, ThePeakOfAMixIsBetweenItsParts) {
  FlopTerms terms = flop_terms(flops_gpt2(), 1024);
  EXPECT_EQ(terms.block_parameters, 84'934'656);
  EXPECT_DOUBLE_EQ(mixed_peak_flops(terms, 1e15, 1e15), 1e15);
  // Products of blocks at twice the rate take half their time.
  const double all = model_flops_per_token(terms), products = 6.0 * 84'934'656;
  EXPECT_DOUBLE_EQ(mixed_peak_flops(terms, 2e15, 1e15), all / (products / 2e15 + (all - products) / 1e15));
}

}  // namespace
}  // namespace plait::model
