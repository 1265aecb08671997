#include "ops/cross_entropy.h"

#include <limits>
#include <span>

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

TEST_P(CrossEntropyTest, WhatAnIgnoredRowHoldsDoesNotMatter) {
  const VocabShape& s = shape();
  Tensor logits = logits_of(s);
  const auto row = std::span(logits.values).subspan(static_cast<std::size_t>(2 * s.padded), static_cast<std::size_t>(s.vocab));
  row.front() = std::numeric_limits<double>::quiet_NaN(), row.back() = std::numeric_limits<double>::infinity();
  const CrossEntropyRun got = run_cross_entropy(precision().device, precision().compute, s, logits, true);
  EXPECT_EQ(got.losses.values[2], 0.0);
  for (std::int64_t i = 0; i < s.padded; ++i)
    ASSERT_EQ(got.logits.values[static_cast<std::size_t>(2 * s.padded + i)], 0.0) << i;
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
                         testing::ValuesIn(cases<VocabShape>(one_type(gpu_precisions()), {{4, 11, 16},
                                                                                          {37, 256, 256},
                                                                                          {7, 2047, 2048},
                                                                                          {6, 2050, 2056},
                                                                                          {200, 50257, 50304},
                                                                                          {5, 151936, 151936},
                                                                                          {3, 120000, 120000},
                                                                                          {9, 32001, 32064}})),
                         case_name);

// The same logits with their columns split evenly, as tensor-parallel ranks hold them.
struct SplitShape {
  VocabShape whole;
  std::int64_t parts = 1;
  std::string name() const { return whole.name() + "_parts" + std::to_string(parts); }
  std::int64_t columns() const { return whole.padded / parts; }
};

struct SplitRun {
  Tensor statistics;           // [parts, rows, 3]
  std::vector<Tensor> losses;  // of each part
  Tensor logits;               // of all parts, side by side
};

SplitRun run_split(DeviceKind kind, DType dtype, const SplitShape& s, const Tensor& logits, bool write_gradient) {
  OpDevice device(kind);
  const std::int64_t rows = s.whole.rows, columns = s.columns();
  const DType number = dtype == DType::f64 ? DType::f64 : DType::f32;
  const View targets = device.put(targets_of(s.whole)), statistics = device.poisoned({s.parts, rows, 3}, number);
  const auto in_whole = [&](std::int64_t part, std::int64_t i) {
    return static_cast<std::size_t>(i / columns * s.whole.padded + part * columns + i % columns);
  };
  std::vector<View> parts;
  for (std::int64_t part = 0; part < s.parts; ++part) {
    Tensor own{{rows, columns}, {}};
    for (std::int64_t i = 0; i < rows * columns; ++i) own.values.push_back(logits.values[in_whole(part, i)]);
    parts.push_back(device.put(own, dtype));
    CrossEntropyStatistics args;
    args.logits = parts.back();
    args.targets = targets;
    args.statistics = statistics.rows(part, 1).reshaped({rows, 3});
    args.first_token = part * columns;
    args.vocab = s.whole.vocab - args.first_token;
    cross_entropy_statistics(device.stream(), args);
  }
  SplitRun run{device.get(statistics), {}, logits};
  for (std::int64_t part = 0; part < s.parts; ++part) {
    CrossEntropyFinish args;
    args.logits = parts[static_cast<std::size_t>(part)];
    args.targets = targets;
    args.statistics = statistics;
    args.losses = device.poisoned({rows}, number);
    args.first_token = part * columns;
    args.vocab = s.whole.vocab - args.first_token;
    args.scale = scale;
    args.write_gradient = write_gradient;
    cross_entropy_finish(device.stream(), args);
    run.losses.push_back(device.get(args.losses));
    const Tensor own = device.get(args.logits);
    for (std::int64_t i = 0; i < rows * columns; ++i)
      run.logits.values[in_whole(part, i)] = own.values[static_cast<std::size_t>(i)];
  }
  return run;
}

class SplitCrossEntropyTest : public OpTest<SplitShape> {
 protected:
  Tensor logits() const { return rounded({{"logits", logits_of(shape().whole)}}, precision().compute).at("logits"); }
  SplitRun run(const Tensor& logits, bool write_gradient) const {
    return run_split(precision().device, precision().compute, shape(), logits, write_gradient);
  }
};

TEST_P(SplitCrossEntropyTest, StatisticsMatchTheirDefinition) {
  const SplitShape& s = shape();
  const Tensor in = logits(), got = run(in, false).statistics;
  const std::vector<std::int32_t> targets = targets_of(s.whole);
  const std::int64_t columns = s.columns();
  for (std::int64_t part = 0; part < s.parts; ++part) {
    for (std::int64_t row = 0; row < s.whole.rows; ++row) {
      const auto first = in.values.begin() + row * s.whole.padded + part * columns;
      const std::int64_t valid = std::clamp<std::int64_t>(s.whole.vocab - part * columns, 0, columns);
      const std::int64_t target = targets[static_cast<std::size_t>(row)] - part * columns;
      const double most = valid > 0 ? *std::max_element(first, first + valid) : -HUGE_VAL;
      double sum = 0;
      for (auto logit = first; logit != first + valid; ++logit) sum += std::exp(*logit - most);
      const double* statistics = got.values.data() + (part * s.whole.rows + row) * 3;
      ASSERT_EQ(statistics[0], most) << "part " << part << ", row " << row;
      ASSERT_NEAR(statistics[1], sum, 2e-5 * sum) << "part " << part << ", row " << row;
      ASSERT_EQ(statistics[2], target >= 0 && target < valid ? first[target] : 0.0) << "part " << part << ", row " << row;
    }
  }
}

TEST_P(SplitCrossEntropyTest, MatchesTheOracleOfTheWhole) {
  const SplitShape& s = shape();
  const Tensor in = logits();
  const SplitRun got = run(in, true);
  const CrossEntropyRun expected = run_cross_entropy(DeviceKind::host, DType::f64, s.whole, in, true);
  for (const Tensor& losses : got.losses) {
    expect_close("losses", losses, expected.losses, 1e-5, 5e-5);
    EXPECT_EQ(losses.values, got.losses.front().values) << "the parts disagree";
  }
  expect_close("gradient", got.logits, expected.logits, precision().norm_error, precision().largest_error);
  expect_close("gradient beside the targets", without_targets(s.whole, got.logits), without_targets(s.whole, expected.logits),
               precision().norm_error, precision().largest_error);
  const std::vector<std::int32_t> targets = targets_of(s.whole);
  for (std::int64_t row = 0; row < s.whole.rows; ++row) {
    const bool ignored = targets[static_cast<std::size_t>(row)] == -1;
    if (ignored) {
      ASSERT_EQ(got.losses.front().values[static_cast<std::size_t>(row)], 0.0) << "row " << row;
    }
    for (std::int64_t i = ignored ? 0 : s.whole.vocab; i < s.whole.padded; ++i) {
      ASSERT_EQ(got.logits.values[static_cast<std::size_t>(row * s.whole.padded + i)], 0.0)
          << "row " << row << ", column " << i;
    }
  }
}

TEST_P(SplitCrossEntropyTest, WithoutGradientLogitsStayAsTheyAre) {
  const Tensor in = logits();
  const SplitRun got = run(in, false);
  EXPECT_EQ(got.logits.values, in.values);
  EXPECT_EQ(got.losses.front().values, run(in, true).losses.front().values);
}

// Even where they are all that a part has, so that its largest logit is none.
TEST_P(SplitCrossEntropyTest, NansInOnePartShowInTheLossesOfAll) {
  Tensor in = logits();
  std::fill_n(in.values.begin(), shape().columns(), std::nan(""));
  for (const Tensor& losses : run(in, true).losses) {
    EXPECT_TRUE(std::isnan(losses.values[0]));
    EXPECT_TRUE(std::isfinite(losses.values[1]));
  }
}

// Tiny vocabularies leave some parts all padding; columns that fill no pack of 16 bytes are read singly.
INSTANTIATE_TEST_SUITE_P(Host, SplitCrossEntropyTest,
                         testing::ValuesIn(cases<SplitShape>(one_type(host_precisions()), {{{7, 50, 64}, 1},
                                                                                           {{7, 50, 64}, 2},
                                                                                           {{4, 50, 66}, 3},
                                                                                           {{3, 1000, 1024}, 4},
                                                                                           {{5, 3, 12}, 4},
                                                                                           {{4, 2, 9}, 3},
                                                                                           {{2, 4, 4}, 4}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, SplitCrossEntropyTest,
                         testing::ValuesIn(cases<SplitShape>(one_type(gpu_precisions()), {{{37, 256, 256}, 1},
                                                                                          {{37, 250, 256}, 2},
                                                                                          {{100, 50257, 50304}, 4},
                                                                                          {{9, 32001, 32064}, 3},
                                                                                          {{5, 151936, 151936}, 2},
                                                                                          {{6, 11, 64}, 4},
                                                                                          {{4, 50, 51}, 3}})),
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

TEST(CrossEntropyHostTest, SplitInDoubleMatchesTheWhole) {
  for (const std::int64_t parts : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(parts) + " parts");
    const SplitShape s{{5, 9, 12}, parts};
    const Tensor in = logits_of(s.whole);
    const SplitRun got = run_split(DeviceKind::host, DType::f64, s, in, true);
    const CrossEntropyRun expected = run_cross_entropy(DeviceKind::host, DType::f64, s.whole, in, true);
    for (const Tensor& losses : got.losses) expect_close("losses", losses, expected.losses, 1e-14, 1e-14);
    expect_close("gradient", got.logits, expected.logits, 1e-14, 1e-14);
  }
}

TEST(CrossEntropyHostTest, ATargetAmongThePaddingStopsTheStream) {
  OpDevice device(DeviceKind::host);
  CrossEntropyStatistics args;
  args.logits = device.put(random_tensor({2, 4}, "logits"), DType::f32);
  args.targets = device.put(std::vector<std::int32_t>{3, 7});  // another part's; a column of padding
  args.statistics = device.poisoned({2, 3}, DType::f32);
  args.vocab = 3;
  args.first_token = 4;
  cross_entropy_statistics(device.stream(), args);
  EXPECT_THROW(device.stream().synchronize(), InternalError);
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
