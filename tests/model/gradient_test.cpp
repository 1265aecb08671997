// The whole model's gradients against central finite differences in double, for every model family, and recompute against
// keeping everything.
#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"
#include "model/serial_model.h"

namespace plait::model {
namespace {

ModelShape gpt() {
  ModelShape s;
  s.layers = 2, s.hidden = 24, s.heads = 3, s.kv_heads = 3, s.head_dim = 8, s.ffn = 40, s.vocab = 37, s.padded_vocab = 48;
  s.max_sequence = 12;
  return s;
}

ModelShape llama() {
  ModelShape s;
  s.layers = 2, s.hidden = 24, s.heads = 4, s.kv_heads = 2, s.head_dim = 8, s.ffn = 40, s.vocab = 37, s.padded_vocab = 48;
  s.norm = ops::NormKind::rms_norm, s.mlp = Mlp::swiglu, s.position = Position::rope;
  s.tie_embeddings = false, s.bias = false, s.qkv_bias = true;
  return s;
}

ModelShape with_window(ModelShape s, std::int64_t window, std::vector<std::int64_t> layers = {}) {
  s.window = window, s.window_layers = std::move(layers);
  return s;
}

// Heads are wider than hidden / heads; queries and keys are normed.
ModelShape qwen3() {
  ModelShape s = llama();
  s.head_dim = 10, s.qkv_bias = false, s.qk_norm = true;
  return s;
}

struct Case {
  const char* name;
  ModelShape shape;
  Recompute recompute;
  Documents documents = Documents::joined;
};

class ModelGradient : public testing::TestWithParam<Case> {
 protected:
  SerialModel make(DType compute) const {
    return SerialModel({GetParam().shape, {}, {2, 9, GetParam().documents}, compute, GetParam().recompute}, 42);
  }
};

TEST_P(ModelGradient, MatchesFiniteDifferences) {
  SerialModel m = make(DType::f64);
  m.run(true);
  for (std::size_t p = 0; p < m.list().size(); ++p) {
    const Parameter& parameter = m.list()[p];
    double norm = 0;
    for (std::int64_t i = 0; i < parameter.stored; ++i) norm = std::max(norm, std::abs(SerialModel::get(m.gradient(p), i)));
    ASSERT_GT(norm, 0) << parameter.name << ": a gradient of zero proves nothing";
    for (int probe = 0; probe < 5; ++probe) {
      const auto i = static_cast<std::int64_t>(
          Random(7, parameter.name).below(static_cast<std::uint64_t>(parameter.stored), static_cast<std::uint64_t>(probe)));
      const double w = SerialModel::get(m.weight(p), i);
      const double h = 1e-5;
      SerialModel::set(m.weight(p), i, w + h);
      const double above = m.run(false);
      SerialModel::set(m.weight(p), i, w - h);
      const double below = m.run(false);
      SerialModel::set(m.weight(p), i, w);
      // The loss scale passes through a float, hence 1e-6 rather than 1e-9.
      EXPECT_NEAR(SerialModel::get(m.gradient(p), i), (above - below) / (2 * h), 1e-6 * norm + 1e-9)
          << parameter.name << " " << i;
    }
    for (std::int64_t i = parameter.stored; i < parameter.shape.elements(); ++i) {
      ASSERT_EQ(SerialModel::get(m.gradient(p), i), 0.0) << parameter.name << ": padding";
    }
  }
}

TEST_P(ModelGradient, AccumulatesOverMicroBatches) {
  SerialModel once = make(DType::f64), twice = make(DType::f64);
  once.run(true);
  twice.run(true);
  twice.run(true, true);
  for (std::size_t p = 0; p < once.list().size(); ++p) {
    for (std::int64_t i = 0; i < once.gradient(p).elements(); ++i) {
      const double g = SerialModel::get(once.gradient(p), i);
      ASSERT_NEAR(SerialModel::get(twice.gradient(p), i), 2 * g, 1e-12 + 1e-10 * std::abs(g)) << once.list()[p].name;
    }
  }
}

TEST_P(ModelGradient, RecomputeChangesNoBit) {
  SerialModel kept({GetParam().shape, {}, {2, 9, GetParam().documents}, DType::f32, Recompute::none}, 42);
  SerialModel m = make(DType::f32);
  EXPECT_EQ(kept.run(true), m.run(true));
  for (std::size_t p = 0; p < m.list().size(); ++p) {
    for (std::int64_t i = 0; i < m.gradient(p).elements(); ++i) {
      ASSERT_EQ(SerialModel::get(m.gradient(p), i), SerialModel::get(kept.gradient(p), i)) << m.list()[p].name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, ModelGradient,
    testing::Values(Case{"gpt", gpt(), Recompute::none}, Case{"gpt_selective", gpt(), Recompute::selective},
                    Case{"gpt_full", gpt(), Recompute::full}, Case{"llama", llama(), Recompute::none},
                    Case{"llama_selective", llama(), Recompute::selective}, Case{"llama_full", llama(), Recompute::full},
                    Case{"gpt_documents", gpt(), Recompute::none, Documents::separate},
                    Case{"llama_window", with_window(llama(), 3, {1}), Recompute::full},
                    Case{"llama_documents_window", with_window(llama(), 3), Recompute::full, Documents::separate},
                    Case{"qwen3", qwen3(), Recompute::none}, Case{"qwen3_selective", qwen3(), Recompute::selective},
                    Case{"qwen3_full", qwen3(), Recompute::full},
                    Case{"qwen3_documents_window", with_window(qwen3(), 3), Recompute::selective, Documents::separate}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace plait::model
