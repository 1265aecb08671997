#include "ops/linear.h"

#include <thread>

#include "ops/elementwise.h"
#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct LinearShape {
  std::int64_t rows = 0, in = 0, out = 0;
  bool bias = false, residual = false, gelu = false, accumulate = false;
  std::string name() const {
    return "rows" + std::to_string(rows) + "_in" + std::to_string(in) + "_out" + std::to_string(out) + (bias ? "_bias" : "") +
           (residual ? "_residual" : "") + (gelu ? "_gelu" : "") + (accumulate ? "_accumulate" : "");
  }
};

Tensors linear_inputs(const LinearShape& s) {
  Tensors in;
  in["x"] = random_tensor({s.rows, s.in}, "x");
  in["w"] = random_tensor({s.out, s.in}, "w", 1.0 / std::sqrt(static_cast<double>(s.in)));
  in["dy"] = random_tensor({s.rows, s.out}, "dy");
  in["input_pre_activation"] = random_tensor({s.rows, s.in}, "pre");
  if (s.bias) in["bias"] = random_tensor({s.out}, "bias");
  if (s.residual) in["residual"] = random_tensor({s.rows, s.out}, "residual");
  if (s.accumulate) {
    in["present_dx"] = random_tensor({s.rows, s.in}, "present_dx");
    in["present_dw"] = random_tensor({s.out, s.in}, "present_dw", std::sqrt(static_cast<double>(s.rows)));
    in["present_dbias"] = random_tensor({s.out}, "present_dbias", std::sqrt(static_cast<double>(s.rows)));
  }
  return in;
}

Tensors linear_forward_on(DeviceKind kind, DType dtype, const LinearShape& s, const Tensors& in) {
  OpDevice device(kind);
  LinearForward args;
  args.x = device.put(in.at("x"), dtype);
  args.w = device.put(in.at("w"), dtype);
  if (s.bias) args.bias = device.put(in.at("bias"), dtype);
  if (s.residual) args.residual = device.put(in.at("residual"), dtype);
  args.y = device.poisoned({s.rows, s.out}, dtype);
  if (s.gelu) {
    args.epilogue = Epilogue::gelu;
    args.pre_activation = device.poisoned({s.rows, s.out}, dtype);
  }
  linear_forward(device.stream(), device.context(), args);
  Tensors result{{"y", device.get(args.y)}};
  if (s.gelu) result["pre_activation"] = device.get(args.pre_activation);
  return result;
}

// dy is the gradient in front of the epilogue: what linear_backward_* take.
Tensors linear_backward_on(const Precision& p, const LinearShape& s, const Tensors& in) {
  OpDevice device(p.device);
  const View dy = device.put(in.at("dy"), p.compute), w = device.put(in.at("w"), p.compute),
             x = device.put(in.at("x"), p.compute);
  const auto output = [&](const char* present, Shape shape, DType dtype) {
    return s.accumulate ? device.put(in.at(present), dtype) : device.poisoned(shape, dtype);
  };
  LinearBackwardInput input;
  input.dy = dy;
  input.w = w;
  input.dx = output("present_dx", {s.rows, s.in}, p.compute);
  input.accumulate = s.accumulate;
  linear_backward_input(device.stream(), device.context(), input);

  LinearBackwardInput fused;
  fused.dy = dy;
  fused.w = w;
  fused.pre_activation = device.put(in.at("input_pre_activation"), p.compute);
  fused.dx = device.poisoned({s.rows, s.in}, p.compute);
  linear_backward_input(device.stream(), device.context(), fused);

  LinearBackwardWeight weight;
  weight.dy = dy;
  weight.x = x;
  weight.dw = output("present_dw", {s.out, s.in}, p.gradient);
  if (s.bias) weight.dbias = output("present_dbias", {s.out}, p.gradient);
  weight.accumulate = s.accumulate;
  linear_backward_weight(device.stream(), device.context(), weight);

  Tensors result{{"dx", device.get(input.dx)}, {"dx_through_gelu", device.get(fused.dx)}, {"dw", device.get(weight.dw)}};
  if (s.bias) result["dbias"] = device.get(weight.dbias);
  return result;
}

Tensor added(Tensor a, const Tensor& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

class LinearTest : public OpTest<LinearShape> {};

TEST_P(LinearTest, ForwardMatchesTheOracle) {
  const Tensors in = rounded(linear_inputs(shape()), precision().compute);
  expect_close(linear_forward_on(precision().device, precision().compute, shape(), in),
               linear_forward_on(DeviceKind::host, DType::f64, shape(), in), precision());
}

TEST_P(LinearTest, BackwardMatchesTheOracle) {
  const Tensors in = rounded(linear_inputs(shape()), precision().compute);
  Tensors got = linear_backward_on(precision(), shape(), in);
  Tensors expected = linear_backward_on(oracle, shape(), in);
  expect_close(got, expected, precision());
  if (precision().gradient == DType::f32) {  // nothing on the way to an f32 gradient may be rounded to bf16
    expect_close("dw in f32", got.at("dw"), expected.at("dw"), 2e-5, 1e-4);
    if (shape().bias) expect_close("dbias in f32", got.at("dbias"), expected.at("dbias"), 2e-5, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Host, LinearTest,
                         testing::ValuesIn(cases<LinearShape>(host_precisions(), {{1, 1, 1, true},
                                                                                  {7, 5, 3, true, true, false, true},
                                                                                  {33, 48, 65, true, false, true},
                                                                                  {64, 40, 96, false, true, false, true},
                                                                                  {130, 72, 24, false, false, true}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, LinearTest,
                         testing::ValuesIn(cases<LinearShape>(gpu_precisions(), {{8, 8, 8, true},
                                                                                 {400, 776, 1000, true, true, false, true},
                                                                                 {400, 776, 3104, true, false, true},
                                                                                 {600, 3104, 776, true, true},
                                                                                 {200, 768, 50304, false, false, false, true},
                                                                                 {1024, 1000, 2000, false, false, true}})),
                         case_name);

TEST(LinearGradientTest, MatchesCentralDifferences) {
  for (const LinearShape s :
       {LinearShape{6, 5, 4, true, true}, LinearShape{6, 5, 4, true, false, true}, LinearShape{3, 7, 9}}) {
    SCOPED_TRACE(s.name());
    const Tensors in = linear_inputs(s);
    const auto loss = [&](const Tensors& at) {
      return dot(linear_forward_on(DeviceKind::host, DType::f64, s, at).at("y"), in.at("dy"));
    };
    // Behind the gelu, dy becomes dy * gelu'(pre_activation) first, as the model does in the next layer's backward.
    Tensors backward_in = in;
    if (s.gelu) {
      OpDevice device(DeviceKind::host);
      const View pre = device.put(linear_forward_on(DeviceKind::host, DType::f64, s, in).at("pre_activation"), DType::f64);
      const View dy = device.put(in.at("dy"), DType::f64);
      gelu_backward(device.stream(), device.context(), pre, dy, dy);
      backward_in["dy"] = device.get(dy);
    }
    const Tensors gradients = linear_backward_on(oracle, s, backward_in);
    expect_gradient("x", in, gradients.at("dx"), loss);
    expect_gradient("w", in, gradients.at("dw"), loss);
    if (s.bias) expect_gradient("bias", in, gradients.at("dbias"), loss);
    if (s.residual) expect_gradient("residual", in, in.at("dy"), loss);
  }
}

TEST(LinearGradientTest, InputGradientThroughGeluMatchesCentralDifferences) {
  const LinearShape s{6, 5, 4};
  const Tensors in = linear_inputs(s);
  const auto loss = [&](const Tensors& at) {
    OpDevice device(DeviceKind::host);
    const View x = device.put(at.at("input_pre_activation"), DType::f64);
    gelu_forward(device.stream(), device.context(), x, x);
    Tensors layer = at;
    layer["x"] = device.get(x);
    return dot(linear_forward_on(DeviceKind::host, DType::f64, s, layer).at("y"), in.at("dy"));
  };
  expect_gradient("input_pre_activation", in, linear_backward_on(oracle, s, in).at("dx_through_gelu"), loss);
}

TEST(LinearGradientTest, AccumulateAddsToWhatIsThere) {
  const LinearShape overwrite{6, 5, 4, true};
  LinearShape accumulate = overwrite;
  accumulate.accumulate = true;
  const Tensors in = linear_inputs(accumulate);
  const Tensors fresh = linear_backward_on(oracle, overwrite, in), sum = linear_backward_on(oracle, accumulate, in);
  for (const std::string name : {"dx", "dw", "dbias"}) {
    expect_close(name, sum.at(name), added(fresh.at(name), in.at("present_" + name)), 1e-15, 1e-15);
  }
}

class LinearResidualTest : public OpTest<LinearShape> {};

TEST_P(LinearResidualTest, ResidualMayBeTheOutputItself) {
  const LinearShape& s = shape();
  const Tensors in = rounded(linear_inputs(s), precision().compute);
  OpDevice device(precision().device);
  LinearForward args;
  args.x = device.put(in.at("x"), precision().compute);
  args.w = device.put(in.at("w"), precision().compute);
  args.bias = device.put(in.at("bias"), precision().compute);
  args.y = args.residual = device.put(in.at("residual"), precision().compute);
  linear_forward(device.stream(), device.context(), args);
  expect_close({{"y", device.get(args.y)}}, linear_forward_on(DeviceKind::host, DType::f64, s, in), precision());
}

INSTANTIATE_TEST_SUITE_P(Host, LinearResidualTest,
                         testing::ValuesIn(cases<LinearShape>(host_precisions(), {{17, 24, 40, true, true}})), case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, LinearResidualTest,
                         testing::ValuesIn(cases<LinearShape>(gpu_precisions(), {{400, 776, 1000, true, true}})), case_name);

TEST(LinearHostTest, RanksInOneProcessGetTheSameBits) {
  const LinearShape s{96, 64, 128, true, false, true};
  const Tensors in = linear_inputs(s);
  const Tensors alone = linear_forward_on(DeviceKind::host, DType::f32, s, in);
  std::vector<Tensors> together(4);
  std::vector<std::thread> ranks;
  for (Tensors& result : together) {
    ranks.emplace_back([&] { result = linear_forward_on(DeviceKind::host, DType::f32, s, in); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Tensors& result : together) expect_same_bits(alone, result);
}

}  // namespace
}  // namespace plait::ops
