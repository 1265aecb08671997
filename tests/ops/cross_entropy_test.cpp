#include "ops/cross_entropy.h"

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct VocabShape {
  std::int64_t rows = 0, vocab = 0, padded = 0;
  std::string name() const {
    return "rows" + std::to_string(rows) + "_vocab" + std::to_string(vocab) + "_padded" + std::to_string(padded);
  }
};

constexpr float scale = 0.125f;

// Every third row is ignored.
std::vector<std::int32_t> targets_of(const VocabShape& s) {
  std::vector<std::int32_t> targets = random_indices(s.rows, s.vocab, "targets");
  for (std::size_t i = 2; i < targets.size(); i += 3) targets[i] = -1;
  targets[0] = static_cast<std::int32_t>(s.vocab - 1);
  return targets;
}

struct CrossEntropyRun {
  Tensor losses, logits;
};

CrossEntropyRun run_cross_entropy(DeviceKind kind, DType dtype, const VocabShape& s, const Tensor& logits,
                                  bool write_gradient) {
  OpDevice device(kind);
  CrossEntropy args;
  args.logits = device.put(logits, dtype);
  args.targets = device.put(targets_of(s));
  args.losses = device.poisoned({s.rows}, dtype == DType::f64 ? DType::f64 : DType::f32);
  args.vocab = s.vocab;
  args.scale = scale;
  args.write_gradient = write_gradient;
  cross_entropy(device.stream(), args);
  return {device.get(args.losses), device.get(args.logits)};
}

Tensor logits_of(const VocabShape& s) {
  Tensor logits = random_tensor({s.rows, s.padded}, "logits", 2.0);
  for (std::int64_t row = 0; row < s.rows; ++row) {  // padding that would win the softmax, were it looked at
    for (std::int64_t i = s.vocab; i < s.padded; ++i) logits.values[static_cast<std::size_t>(row * s.padded + i)] = 50.0;
  }
  return logits;
}

// The gradient without the targets' entries, which outweigh all others.
Tensor without_targets(const VocabShape& s, Tensor gradient) {
  const std::vector<std::int32_t> targets = targets_of(s);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const std::int64_t target = targets[static_cast<std::size_t>(row)];
    if (target >= 0) gradient.values[static_cast<std::size_t>(row * s.padded + target)] = 0;
  }
  return gradient;
}

class CrossEntropyTest : public OpTest<VocabShape> {};

TEST_P(CrossEntropyTest, MatchesTheOracle) {
  const VocabShape& s = shape();
  const Tensor logits = rounded({{"logits", logits_of(s)}}, precision().compute).at("logits");
  const CrossEntropyRun got = run_cross_entropy(precision().device, precision().compute, s, logits, true);
  const CrossEntropyRun expected = run_cross_entropy(DeviceKind::host, DType::f64, s, logits, true);
  expect_close("losses", got.losses, expected.losses, 1e-5, 5e-5);  // f32 whatever the logits are
  expect_close("gradient", got.logits, expected.logits, precision().norm_error, precision().largest_error);
  if (s.vocab > 1) {
    expect_close("gradient beside the targets", without_targets(s, got.logits), without_targets(s, expected.logits),
                 precision().norm_error, precision().largest_error);
  }
  const std::vector<std::int32_t> targets = targets_of(s);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const bool ignored = targets[static_cast<std::size_t>(row)] == -1;
    if (ignored) {
      ASSERT_EQ(got.losses.values[static_cast<std::size_t>(row)], 0.0) << "row " << row;
    }
    for (std::int64_t i = ignored ? 0 : s.vocab; i < s.padded; ++i) {
      ASSERT_EQ(got.logits.values[static_cast<std::size_t>(row * s.padded + i)], 0.0) << "row " << row << ", column " << i;
    }
  }
}

TEST_P(CrossEntropyTest, WithoutGradientLogitsStayAsTheyAre) {
  const Tensor logits = rounded({{"logits", logits_of(shape())}}, precision().compute).at("logits");
  const CrossEntropyRun got = run_cross_entropy(precision().device, precision().compute, shape(), logits, false);
  const CrossEntropyRun with = run_cross_entropy(precision().device, precision().compute, shape(), logits, true);
  EXPECT_EQ(got.logits.values, logits.values);
  EXPECT_EQ(got.losses.values, with.losses.values);
}

INSTANTIATE_TEST_SUITE_P(Host, CrossEntropyTest,
                         testing::ValuesIn(cases<VocabShape>(one_type(host_precisions()),
                                                             {{4, 11, 11}, {7, 50, 64}, {3, 1000, 1024}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, CrossEntropyTest,
                         testing::ValuesIn(cases<VocabShape>(
                             one_type(gpu_precisions()),
                             {{4, 11, 16}, {37, 256, 256}, {200, 50257, 50304}, {5, 151936, 151936}, {9, 32001, 32064}})),
                         case_name);

TEST(CrossEntropyGradientTest, MatchesCentralDifferences) {
  const VocabShape s{4, 9, 12};
  const Tensors in{{"logits", logits_of(s)}};
  const auto loss = [&](const Tensors& at) {
    double total = 0;
    for (const double value : run_cross_entropy(DeviceKind::host, DType::f64, s, at.at("logits"), false).losses.values)
      total += value;
    return total * static_cast<double>(scale);
  };
  expect_gradient("logits", in, run_cross_entropy(DeviceKind::host, DType::f64, s, in.at("logits"), true).logits, loss);
}

TEST(CrossEntropyHostTest, LargeLogitsDoNotOverflow) {
  const VocabShape s{2, 8, 8};
  Tensor logits = logits_of(s);
  for (double& value : logits.values) value += 1e4;
  const CrossEntropyRun got = run_cross_entropy(DeviceKind::host, DType::f32, s, logits, true);
  for (const double loss : got.losses.values) EXPECT_TRUE(std::isfinite(loss));
}

TEST(CrossEntropyHostTest, NanInALogitShowsInTheLoss) {
  const VocabShape s{2, 8, 8};
  Tensor logits = logits_of(s);
  logits.values[3] = std::nan("");
  EXPECT_TRUE(std::isnan(run_cross_entropy(DeviceKind::host, DType::f32, s, logits, false).losses.values[0]));
}

}  // namespace
}  // namespace plait::ops
