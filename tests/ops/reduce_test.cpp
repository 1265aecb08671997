#include "ops/reduce.h"

#include <numeric>

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct ReduceShape {
  std::int64_t count = 0;
  std::string name() const { return "count" + std::to_string(count); }
};

constexpr float sum_scale = 0.75f;

struct ReduceResult {
  double sum = 0, sum_of_squares = 0;
};

ReduceResult run_reduce(DeviceKind kind, DType dtype, const Tensor& values, bool accumulate) {
  OpDevice device(kind);
  const DType out_type = dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto output = [&] { return accumulate ? device.put(Tensor{{1}, {10.0}}, out_type) : device.poisoned({1}, out_type); };
  const View in = device.put(values, dtype), total = output(), squares = output();
  ReduceResult result;
  if (dtype != DType::bf16) {
    sum(device.stream(), device.context(), in, total, sum_scale, accumulate);
    result.sum = device.get(total).values[0];
  }
  sum_of_squares(device.stream(), device.context(), {&in, 1}, squares);
  result.sum_of_squares = device.get(squares).values[0];
  return result;
}

class ReduceTest : public OpTest<ReduceShape> {};

TEST_P(ReduceTest, MatchesASumInDouble) {
  const DType dtype = precision().compute;
  const Tensor values = rounded({{"v", random_tensor({shape().count}, "values", 1.0, 0.5)}}, dtype).at("v");
  const double total = std::accumulate(values.values.begin(), values.values.end(), 0.0) * static_cast<double>(sum_scale);
  const double squares = dot(values, values);
  double magnitude = 0;
  for (const double value : values.values) magnitude += std::abs(value);
  for (const bool accumulate : {false, true}) {
    const double present = accumulate ? 10.0 : 0.0;
    const ReduceResult got = run_reduce(precision().device, dtype, values, accumulate);
    if (dtype != DType::bf16) {
      EXPECT_NEAR(got.sum, total + present, 2e-6 * (magnitude + present));
    }
    EXPECT_NEAR(got.sum_of_squares, squares, 2e-6 * squares);
  }
}

TEST_P(ReduceTest, GivesTheSameBitsOnEveryRun) {
  const Tensor values = random_tensor({shape().count}, "values");
  const ReduceResult first = run_reduce(precision().device, precision().compute, values, false);
  const ReduceResult second = run_reduce(precision().device, precision().compute, values, false);
  EXPECT_EQ(first.sum, second.sum);
  EXPECT_EQ(first.sum_of_squares, second.sum_of_squares);
}

// As the gradients of a rank's buckets: in any number, of any size, some of them at addresses that no pack can begin at.
TEST_P(ReduceTest, SquaresOfPartsAreThoseOfTheWhole) {
  const DType dtype = precision().compute;
  OpDevice device(precision().device);
  const Tensor values = rounded({{"v", random_tensor({shape().count}, "values", 1.0, 0.5)}}, dtype).at("v");
  const View whole = device.put(values, dtype);
  const double squares = dot(values, values);
  for (const std::int64_t wanted : {2, 3, 96, 97, 250}) {
    for (const std::int64_t step : {1, 8}) {  // elements; 8 keep every part aligned
      std::vector<View> parts;
      std::int64_t first = 0;
      for (std::int64_t n = 0; n < wanted; ++n) {
        const std::int64_t even = shape().count * (n + 1) / wanted, odd = n % 5 == 3 ? first : even + n % 3;
        const std::int64_t end = n + 1 == wanted ? shape().count : std::clamp(odd / step * step, first, shape().count);
        parts.push_back(whole.rows(first, end - first));
        first = end;
      }
      const View out = device.poisoned({1}, dtype == DType::f64 ? DType::f64 : DType::f32);
      sum_of_squares(device.stream(), device.context(), parts, out);
      EXPECT_NEAR(device.get(out).values[0], squares, 2e-6 * squares) << wanted << " parts in steps of " << step;
    }
  }
  const View out = device.poisoned({1}, DType::f32);
  sum_of_squares(device.stream(), device.context(), {}, out);
  EXPECT_EQ(device.get(out).values[0], 0);
}

INSTANTIATE_TEST_SUITE_P(Host, ReduceTest,
                         testing::ValuesIn(cases<ReduceShape>(one_type(host_precisions()), {{1}, {7}, {4097}, {100003}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ReduceTest,
                         testing::ValuesIn(cases<ReduceShape>(one_type(gpu_precisions()),
                                                              {{1}, {7}, {4097}, {1000003}, {20000000}})),
                         case_name);

TEST_P(ReduceTest, CountsIgnoredTargets) {
  OpDevice device(precision().device);
  std::vector<std::int32_t> targets = random_indices(shape().count, 3, "targets");  // each third of them is
  for (std::int32_t& target : targets) --target;
  const auto ignored = static_cast<double>(std::ranges::count(targets, -1));
  const View in = device.put(targets), out = device.poisoned({1}, DType::f32);
  count_ignored(device.stream(), in, out, false);
  EXPECT_EQ(device.get(out).values[0], ignored);
  count_ignored(device.stream(), in, out, true);
  EXPECT_EQ(device.get(out).values[0], 2 * ignored);
}

TEST(ReduceHostTest, DoubleStaysDouble) {
  const Tensor values = random_tensor({5000}, "values");
  const ReduceResult got = run_reduce(DeviceKind::host, DType::f64, values, false);
  EXPECT_NEAR(got.sum_of_squares, dot(values, values), 1e-10);
  OpDevice device(DeviceKind::host);
  const View ignored = device.put(Tensor{{1}, {std::ldexp(1.0, 40)}}, DType::f64);
  count_ignored(device.stream(), device.put(std::vector<std::int32_t>{-1, 0, 5, -1}), ignored, true);
  EXPECT_EQ(device.get(ignored).values[0], std::ldexp(1.0, 40) + 2);
}

}  // namespace
}  // namespace plait::ops
