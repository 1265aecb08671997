#include "ops/elementwise.h"

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct ActivationShape {
  std::int64_t rows = 0, dim = 0;
  std::string name() const { return "rows" + std::to_string(rows) + "_dim" + std::to_string(dim); }
};

Tensors activation_inputs(const ActivationShape& s) {
  return {{"x", random_tensor({s.rows, s.dim}, "x", 2.5)},
          {"gate_up", random_tensor({s.rows, 2 * s.dim}, "gate_up", 2.5)},
          {"dy", random_tensor({s.rows, s.dim}, "dy")}};
}

Tensors run_activations(DeviceKind kind, DType dtype, const ActivationShape& s, const Tensors& in, bool in_place = false) {
  OpDevice device(kind);
  const View x = device.put(in.at("x"), dtype), gate_up = device.put(in.at("gate_up"), dtype),
             dy = device.put(in.at("dy"), dtype);
  const View y = device.poisoned({s.rows, s.dim}, dtype), gated = device.poisoned({s.rows, s.dim}, dtype);
  const View dx = in_place ? device.put(in.at("dy"), dtype) : device.poisoned({s.rows, s.dim}, dtype);
  const View dgate_up = in_place ? gate_up : device.poisoned({s.rows, 2 * s.dim}, dtype);
  gelu_forward(device.stream(), device.context(), x, y);
  gelu_backward(device.stream(), device.context(), x, in_place ? dx : dy, dx);
  swiglu_forward(device.stream(), device.context(), gate_up, gated);
  const View again = in_place ? dy : device.poisoned({s.rows, s.dim}, dtype);
  swiglu_backward(device.stream(), device.context(), gate_up, dy, dgate_up, again);
  if (in_place) gelu_forward(device.stream(), device.context(), x, x);
  return {{"gelu", device.get(in_place ? x : y)},
          {"dgelu", device.get(dx)},
          {"swiglu", device.get(gated)},
          {"swiglu again", device.get(again)},
          {"dswiglu", device.get(dgate_up)}};
}

class ActivationTest : public OpTest<ActivationShape> {};

TEST_P(ActivationTest, MatchesTheOracle) {
  const Tensors in = rounded(activation_inputs(shape()), precision().compute);
  expect_close(run_activations(precision().device, precision().compute, shape(), in),
               run_activations(DeviceKind::host, DType::f64, shape(), in), precision());
}

TEST_P(ActivationTest, InPlaceGivesTheSameBits) {
  const Tensors in = rounded(activation_inputs(shape()), precision().compute);
  expect_same_bits(run_activations(precision().device, precision().compute, shape(), in),
                   run_activations(precision().device, precision().compute, shape(), in, true));
}

TEST_P(ActivationTest, BackwardGivesWhatForwardWroteIfAsked) {
  const Tensors in = rounded(activation_inputs(shape()), precision().compute);
  const Tensors got = run_activations(precision().device, precision().compute, shape(), in);
  expect_same_bits({{"swiglu", got.at("swiglu again")}}, {{"swiglu", got.at("swiglu")}});
  OpDevice device(precision().device);
  const View dgate_up = device.poisoned({shape().rows, 2 * shape().dim}, precision().compute);
  swiglu_backward(device.stream(), device.context(), device.put(in.at("gate_up"), precision().compute),
                  device.put(in.at("dy"), precision().compute), dgate_up);
  expect_same_bits({{"dswiglu", device.get(dgate_up)}}, {{"dswiglu", got.at("dswiglu")}});
}

INSTANTIATE_TEST_SUITE_P(Host, ActivationTest,
                         testing::ValuesIn(cases<ActivationShape>(one_type(host_precisions()), {{1, 1}, {7, 13}, {33, 64}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ActivationTest,
                         testing::ValuesIn(cases<ActivationShape>(one_type(gpu_precisions()),
                                                                  {{1, 8}, {7, 13}, {400, 3104}, {201, 4864}})),
                         case_name);

TEST(ActivationHostTest, GeluMatchesItsDefinitionFarOut) {
  OpDevice device(DeviceKind::host);
  Tensor x{{9}, {-40, -12, -5, -1, -1e-6, 1e-6, 1, 5, 40}}, expected = x;
  for (double& value : expected.values) {
    value = 0.5 * value * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (value + 0.044715 * value * value * value)));
  }
  const View y = device.poisoned(x.shape, DType::f32);
  gelu_forward(device.stream(), device.context(), device.put(x, DType::f32), y);
  const Tensor got = device.get(y);
  for (std::size_t i = 0; i < x.values.size(); ++i)
    EXPECT_NEAR(got.values[i], expected.values[i], 4e-7 * std::abs(x.values[i])) << i;
}

TEST(ActivationHostTest, NanAndInfinityAreNotSwallowed) {
  OpDevice device(DeviceKind::host);
  Tensor x{{3}, {std::nan(""), HUGE_VAL, 1.0}};
  const View y = device.put(x, DType::f32);
  gelu_forward(device.stream(), device.context(), y, y);
  const Tensor got = device.get(y);
  EXPECT_TRUE(std::isnan(got.values[0]));
  EXPECT_TRUE(std::isinf(got.values[1]));
  EXPECT_TRUE(std::isfinite(got.values[2]));
}

TEST(ActivationGradientTest, MatchesCentralDifferences) {
  const ActivationShape s{4, 9};
  const Tensors in = activation_inputs(s), gradients = run_activations(DeviceKind::host, DType::f64, s, in);
  const auto loss_of = [&](const std::string& output) {
    return [&, output](const Tensors& at) {
      return dot(run_activations(DeviceKind::host, DType::f64, s, at).at(output), in.at("dy"));
    };
  };
  expect_gradient("x", in, gradients.at("dgelu"), loss_of("gelu"));
  expect_gradient("gate_up", in, gradients.at("dswiglu"), loss_of("swiglu"));
}

}  // namespace
}  // namespace plait::ops
