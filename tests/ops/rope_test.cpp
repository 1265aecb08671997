#include "ops/rope.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct RopeCase {
  AttentionShape s;
  std::string name() const {
    return "batch" + std::to_string(s.batch) + "_sequence" + std::to_string(s.sequence) + "_heads" + std::to_string(s.heads) +
           "_kv" + std::to_string(s.kv_heads) + "_dim" + std::to_string(s.head_dim) +
           (s.documents == Documents::separate ? "_documents" : "");
  }
};

constexpr double base = 10000.0;

Tensor rope_input(const AttentionShape& s) {
  return random_tensor({s.batch * s.sequence, (s.heads + 2 * s.kv_heads) * s.head_dim}, "qkv");
}

Tensor rotated(const Precision& p, const AttentionShape& s, const Tensor& qkv, bool inverse) {
  OpDevice device(p.device);
  Tensor table{{s.sequence + 3, s.head_dim}, {}};  // longer than the sequence, as a model's table may be
  table.values.resize(static_cast<std::size_t>(table.shape.elements()));
  rope_table(base, {}, View(table.values.data(), DType::f64, table.shape));
  Rope args;
  args.shape = s;
  args.table = device.put(table, p.compute == DType::f64 ? DType::f64 : DType::f32);
  if (s.documents == Documents::separate) args.starts = device.put(document_starts(s.batch, s.sequence));
  args.qkv = device.put(qkv, p.compute);
  args.inverse = inverse;
  rope(device.stream(), args);
  return device.get(args.qkv);
}

Tensor rotated_by_definition(const AttentionShape& s, Tensor qkv) {
  const std::int64_t row = qkv.shape[1], half = s.head_dim / 2;
  const std::vector<std::int32_t> starts = document_starts(s.batch, s.sequence);
  const auto position = [&](std::int64_t r) {
    return r % s.sequence - (s.documents == Documents::separate ? starts[static_cast<std::size_t>(r)] : 0);
  };
  for (std::int64_t r = 0; r < qkv.shape[0]; ++r) {
    for (std::int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim);
        const double angle = static_cast<double>(position(r)) * std::pow(base, exponent);
        double& a = qkv.values[static_cast<std::size_t>(r * row + head * s.head_dim + i)];
        double& b = qkv.values[static_cast<std::size_t>(r * row + head * s.head_dim + half + i)];
        const double lower = a * std::cos(angle) - b * std::sin(angle), upper = b * std::cos(angle) + a * std::sin(angle);
        a = lower;
        b = upper;
      }
    }
  }
  return qkv;
}

class RopeTest : public OpTest<RopeCase> {};

TEST_P(RopeTest, MatchesItsDefinition) {
  const Tensors in = rounded({{"qkv", rope_input(shape().s)}}, precision().compute);
  const Tensor got = rotated(precision(), shape().s, in.at("qkv"), false);
  expect_close("qkv", got, rotated_by_definition(shape().s, in.at("qkv")), precision().norm_error, precision().largest_error);
  const std::int64_t row = got.shape[1], values = (shape().s.heads + shape().s.kv_heads) * shape().s.head_dim;
  for (std::int64_t r = 0; r < got.shape[0]; ++r) {
    for (std::int64_t i = values; i < row; ++i) {
      const auto at = static_cast<std::size_t>(r * row + i);
      ASSERT_EQ(got.values[at], in.at("qkv").values[at]) << "value head changed in row " << r;
    }
  }
}

TEST_P(RopeTest, InverseRotatesBack) {
  const Tensors in = rounded({{"qkv", rope_input(shape().s)}}, precision().compute);
  const Tensor there = rotated(precision(), shape().s, in.at("qkv"), false);
  expect_close("qkv", rotated(precision(), shape().s, there, true), in.at("qkv"), 2 * precision().norm_error,
               2 * precision().largest_error);
}

INSTANTIATE_TEST_SUITE_P(
    Host, RopeTest,
    testing::ValuesIn(cases<RopeCase>(one_type(host_precisions()),
                                      {{{2, 9, 4, 2, 6}}, {{1, 40, 2, 2, 32}}, {{3, 21, 4, 2, 6, 0, Documents::separate}}})),
    case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, RopeTest,
                         testing::ValuesIn(cases<RopeCase>(one_type(gpu_precisions()),
                                                           {{{3, 200, 14, 2, 64}},
                                                            {{2, 77, 8, 8, 128}},
                                                            {{1, 1023, 5, 1, 80}},
                                                            {{3, 200, 14, 2, 64, 0, Documents::separate}}})),
                         case_name);

TEST(RopeGradientTest, InverseIsTheGradient) {
  for (const Documents documents : {Documents::joined, Documents::separate}) {
    const AttentionShape s{2, 5, 4, 2, 6, 0, documents};
    const Tensors in{{"qkv", rope_input(s)}};
    const Tensor dy = random_tensor(in.at("qkv").shape, "dy");
    expect_gradient("qkv", in, rotated(oracle, s, dy, true),
                    [&](const Tensors& at) { return dot(rotated(oracle, s, at.at("qkv"), false), dy); });
  }
}

// The ends of the formula; transformers' logits hold what is between them (tests/app/transformers).
TEST(RopeTableTest, ScalesSlowFrequenciesOnly) {
  constexpr std::int64_t width = 16;
  const auto angles = [](const RopeScaling& scaling) {  // of position 1
    std::vector<double> table(2 * width), list;
    rope_table(base, scaling, View(table.data(), DType::f64, {2, width}));
    for (std::int64_t i = 0; i < width / 2; ++i)
      list.push_back(
          std::atan2(table[static_cast<std::size_t>(width + width / 2 + i)], table[static_cast<std::size_t>(width + i)]));
    return list;
  };
  const RopeScaling scaling{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position = 100};
  const std::vector<double> plain = angles({}), scaled = angles(scaling);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double turns = 100 * plain[i] / (2 * std::numbers::pi);
    if (turns > 4) {
      EXPECT_NEAR(scaled[i], plain[i], 1e-12) << i;
    } else if (turns < 1) {
      EXPECT_NEAR(scaled[i], plain[i] / 8, 1e-12) << i;
    } else {
      EXPECT_TRUE(scaled[i] > plain[i] / 8 && scaled[i] < plain[i]) << i;
    }
  }
  EXPECT_THROW(angles({.factor = 8, .low_freq_factor = 4, .high_freq_factor = 4, .original_max_position = 100}), InternalError);
}

TEST(RopeTableTest, RefusesAnOddHeadDim) {
  std::vector<float> memory(15);
  EXPECT_THROW(rope_table(base, {}, View(memory.data(), DType::f32, {3, 5})), InternalError);
  EXPECT_THROW(rope_table(0.0, {}, View(memory.data(), DType::f32, {3, 4})), InternalError);
}

}  // namespace
}  // namespace plait::ops
