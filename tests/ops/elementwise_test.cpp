#include "ops/elementwise.h"

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct Conversion {
  DType from = DType::f32;
  std::int64_t count = 0;
  std::string name() const { return "from_" + std::string(to_string(from)) + "_count" + std::to_string(count); }
};

class ConvertTest : public OpTest<Conversion> {};

TEST_P(ConvertTest, RoundsToNearestEven) {
  const DType from = shape().from, to = precision().compute;
  Tensors in{{"v", random_tensor({shape().count}, "values", 3.0)}};
  // Halfway between two bf16 values, on either side of an even one.
  const std::vector<double> ties{1.0 + 1.0 / 256, 1.0 + 3.0 / 256, -1.0 - 1.0 / 256, 0.0};
  for (std::size_t i = 0; i < ties.size() && i < in["v"].values.size(); ++i) in["v"].values[i] = ties[i];
  in = rounded(in, from);
  OpDevice device(precision().device);
  const View target = device.poisoned({shape().count}, to);
  convert(device.stream(), device.put(in.at("v"), from), target);
  EXPECT_EQ(device.get(target).values, rounded(in, to).at("v").values);
}

TEST_P(ConvertTest, AddAdds) {
  const DType from = shape().from, to = precision().compute;
  const DType wider = size_of(from) > size_of(to) ? from : to, summed = wider == DType::bf16 ? DType::f32 : wider;
  const Tensor x = rounded({{"x", random_tensor({shape().count}, "x")}}, from).at("x");
  Tensor expected = rounded({{"y", random_tensor({shape().count}, "y")}}, to).at("y");
  OpDevice device(precision().device);
  const View y = device.put(expected, to);
  add(device.stream(), device.put(x, from), y);
  for (std::size_t i = 0; i < expected.values.size(); ++i)
    expected.values[i] = round_to(to, round_to(summed, expected.values[i] + x.values[i]));
  EXPECT_EQ(device.get(y).values, expected.values);
}

std::vector<Precision> host_with_double() {
  std::vector<Precision> all = one_type(host_precisions());
  all.push_back(oracle);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Host, ConvertTest,
                         testing::ValuesIn(cases<Conversion>(
                             host_with_double(), {{DType::f32, 1}, {DType::f32, 1001}, {DType::bf16, 77}, {DType::f64, 500}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(
    Gpu, ConvertTest,
    testing::ValuesIn(cases<Conversion>(one_type(gpu_precisions()),
                                        {{DType::f32, 1}, {DType::f32, 1000003}, {DType::bf16, 77}, {DType::bf16, 65536}})),
    case_name);

struct Summands {
  std::int64_t rows = 0, dim = 0;
  bool bias = false, residual = false;
  std::string name() const {
    return "rows" + std::to_string(rows) + "_dim" + std::to_string(dim) + (bias ? "_bias" : "") + (residual ? "_residual" : "");
  }
};

enum class Output { apart, x, residual };

Tensor add_bias_residual_on(DeviceKind kind, DType dtype, const Summands& s, const Tensors& in, Output output) {
  OpDevice device(kind);
  AddBiasResidual args;
  args.x = device.put(in.at("x"), dtype);
  if (s.bias) args.bias = device.put(in.at("bias"), dtype);
  if (s.residual) args.residual = device.put(in.at("residual"), dtype);
  args.y = output == Output::apart ? device.poisoned({s.rows, s.dim}, dtype) : output == Output::x ? args.x : args.residual;
  add_bias_residual(device.stream(), args);
  return device.get(args.y);
}

class AddBiasResidualTest : public OpTest<Summands> {};

TEST_P(AddBiasResidualTest, RoundsTheSumOnceWhereverItGoes) {
  const Summands& s = shape();
  const DType dtype = precision().compute;
  const Tensors in = rounded({{"x", random_tensor({s.rows, s.dim}, "x")},
                              {"bias", random_tensor({s.dim}, "bias")},
                              {"residual", random_tensor({s.rows, s.dim}, "residual")}},
                             dtype);
  Tensor expected = in.at("x");
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const auto add = [&](double value) {
      expected.values[i] = round_to(dtype == DType::f64 ? DType::f64 : DType::f32, expected.values[i] + value);
    };
    if (s.bias) add(in.at("bias").values[i % static_cast<std::size_t>(s.dim)]);
    if (s.residual) add(in.at("residual").values[i]);
    expected.values[i] = round_to(dtype, expected.values[i]);
  }
  for (const Output output : {Output::apart, Output::x, Output::residual}) {
    if (output == Output::residual && !s.residual) continue;
    EXPECT_EQ(add_bias_residual_on(precision().device, dtype, s, in, output).values, expected.values);
  }
}

INSTANTIATE_TEST_SUITE_P(Host, AddBiasResidualTest,
                         testing::ValuesIn(cases<Summands>(
                             host_with_double(),
                             {{1, 1, true, true}, {7, 33, true, false}, {5, 48, false, true}, {9, 24, true, true}, {3, 8}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, AddBiasResidualTest,
                         testing::ValuesIn(cases<Summands>(one_type(gpu_precisions()), {{1, 1, true, true},
                                                                                        {77, 33, true, true},
                                                                                        {300, 776, true, true},
                                                                                        {1000, 768, true, false},
                                                                                        {1000, 768, false, true},
                                                                                        {3, 8}})),
                         case_name);

}  // namespace
}  // namespace plait::ops
