#include "ops/norm.h"

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct QkNormCase {
  AttentionShape s;
  std::string name() const {
    return "batch" + std::to_string(s.batch) + "_sequence" + std::to_string(s.sequence) + "_heads" + std::to_string(s.heads) +
           "_kv" + std::to_string(s.kv_heads) + "_dim" + std::to_string(s.head_dim);
  }
};

constexpr float head_epsilon = 1e-3f;

Tensors qk_norm_inputs(const AttentionShape& s) {
  const Shape packed{s.batch * s.sequence, (s.heads + 2 * s.kv_heads) * s.head_dim};
  return {{"x", random_tensor(packed, "x", 1.5, 0.3)},
          {"dy", random_tensor(packed, "dy")},
          {"query_gain", random_tensor({s.head_dim}, "query_gain", 0.5, 1.0)},
          {"key_gain", random_tensor({s.head_dim}, "key_gain", 0.5, -1.0)}};
}

Tensors run_qk_norm(const Precision& p, const AttentionShape& s, const Tensors& in) {
  OpDevice device(p.device);
  QkNormForward forward;
  forward.shape = s;
  forward.x = device.put(in.at("x"), p.compute);
  forward.query_gain = device.put(in.at("query_gain"), p.compute);
  forward.key_gain = device.put(in.at("key_gain"), p.compute);
  forward.y = device.poisoned(in.at("x").shape, p.compute);
  forward.epsilon = head_epsilon;
  qk_norm_forward(device.stream(), forward);
  QkNormBackward backward;
  backward.shape = s;
  backward.x = forward.x;
  backward.query_gain = forward.query_gain;
  backward.key_gain = forward.key_gain;
  backward.dqkv = device.put(in.at("dy"), p.compute);
  backward.dquery_gain = device.poisoned({s.head_dim}, p.gradient);
  backward.dkey_gain = device.poisoned({s.head_dim}, p.gradient);
  backward.epsilon = head_epsilon;
  qk_norm_backward(device.stream(), device.context(), backward);
  return {{"y", device.get(forward.y)},
          {"dx", device.get(backward.dqkv)},
          {"dquery_gain", device.get(backward.dquery_gain)},
          {"dkey_gain", device.get(backward.dkey_gain)}};
}

Tensor normed_by_definition(const AttentionShape& s, const Tensors& in) {
  Tensor y = in.at("x");
  const auto dim = static_cast<std::size_t>(s.head_dim), heads = static_cast<std::size_t>(s.heads + 2 * s.kv_heads);
  for (std::size_t first = 0; first < y.values.size(); first += dim) {
    const auto head = static_cast<std::int64_t>(first / dim % heads);
    if (head >= s.heads + s.kv_heads) continue;
    const std::vector<double>& gain = in.at(head < s.heads ? "query_gain" : "key_gain").values;
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) squares += y.values[first + i] * y.values[first + i];
    const double root = std::sqrt(squares / static_cast<double>(dim) + static_cast<double>(head_epsilon));
    for (std::size_t i = 0; i < dim; ++i) y.values[first + i] *= gain[i] / root;
  }
  return y;
}

class QkNormTest : public OpTest<QkNormCase> {};

TEST_P(QkNormTest, MatchesDefinitionAndOracle) {
  const AttentionShape& s = shape().s;
  const Tensors in = rounded(qk_norm_inputs(s), precision().compute);
  const Tensors got = run_qk_norm(precision(), s, in);
  expect_close("y", got.at("y"), normed_by_definition(s, in), precision().norm_error, precision().largest_error);
  expect_close(got, run_qk_norm(oracle, s, in), precision());
}

TEST_P(QkNormTest, GivesTheSameBitsOnEveryRunAndLeavesValuesAlone) {
  const AttentionShape& s = shape().s;
  const Tensors in = rounded(qk_norm_inputs(s), precision().compute), first = run_qk_norm(precision(), s, in);
  expect_same_bits(first, run_qk_norm(precision(), s, in));
  const std::int64_t row = in.at("x").shape[1], values = s.kv_heads * s.head_dim;
  for (std::int64_t end = row; end <= in.at("x").shape.elements(); end += row) {
    for (auto i = static_cast<std::size_t>(end - values); i < static_cast<std::size_t>(end); ++i) {
      ASSERT_EQ(first.at("y").values[i], in.at("x").values[i]);
      ASSERT_EQ(first.at("dx").values[i], in.at("dy").values[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Host, QkNormTest,
                         testing::ValuesIn(cases<QkNormCase>(host_precisions(),
                                                             {{{2, 5, 4, 2, 16}}, {{1, 40, 3, 1, 7}}, {{3, 2, 2, 2, 33}}})),
                         case_name);
// Whole and odd widths, more heads than a block takes at once, more tokens than blocks, and heads wider than a warp.
INSTANTIATE_TEST_SUITE_P(Gpu, QkNormTest,
                         testing::ValuesIn(cases<QkNormCase>(gpu_precisions(), {{{3, 200, 14, 2, 64}},
                                                                                {{2, 4100, 32, 8, 128}},
                                                                                {{2, 77, 5, 1, 80}},
                                                                                {{1, 50, 3, 3, 7}},
                                                                                {{1, 33, 2, 1, 4}},
                                                                                {{1, 9, 40, 8, 257}},
                                                                                {{1, 5, 4, 2, 4096}}})),
                         case_name);

TEST(QkNormGradientTest, MatchesCentralDifferences) {
  const AttentionShape s{2, 3, 4, 2, 6};
  Tensors in = qk_norm_inputs(s);
  in["query_gain"].values[2] = 0;  // where what was normalised cannot be had from y
  const Tensors gradients = run_qk_norm(oracle, s, in);
  const auto loss = [&](const Tensors& at) { return dot(run_qk_norm(oracle, s, at).at("y"), in.at("dy")); };
  expect_gradient("x", in, gradients.at("dx"), loss);
  expect_gradient("query_gain", in, gradients.at("dquery_gain"), loss);
  expect_gradient("key_gain", in, gradients.at("dkey_gain"), loss);
}

}  // namespace
}  // namespace plait::ops
