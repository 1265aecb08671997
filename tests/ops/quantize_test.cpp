#include "ops/quantize.h"

#include <functional>
#include <limits>
#include <tuple>

#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/op_test.h"

namespace plait::ops {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Fp8ScaleTest, IsTheLeastPowerOfTwoThatFits) {
  EXPECT_EQ(fp8_scale(448), 1);
  EXPECT_EQ(fp8_scale(std::nextafter(448.0, 500.0)), 2);
  EXPECT_EQ(fp8_scale(224), 0.5);
  EXPECT_EQ(fp8_scale(225), 1);
  EXPECT_EQ(fp8_scale(1), std::ldexp(1.0f, -8));
  EXPECT_EQ(fp8_scale(3e38), std::ldexp(1.0f, 120));
  for (double largest = 1e-30; largest < 1e30; largest *= 1.37) {
    const double scale = static_cast<double>(fp8_scale(largest));
    EXPECT_LE(largest / scale, 448) << largest;
    EXPECT_GT(largest / scale, 224) << largest;
  }
}

// So that the largest of the parts' scales is that of the whole.
TEST(Fp8ScaleTest, GrowsWithTheTensorFromZeroToInfinity) {
  EXPECT_EQ(fp8_scale(0), std::ldexp(1.0f, -126));
  EXPECT_EQ(fp8_scale(1e-300), std::ldexp(1.0f, -126));
  EXPECT_EQ(fp8_scale(infinity), std::numeric_limits<float>::infinity());
  EXPECT_EQ(fp8_scale(std::nan("")), std::numeric_limits<float>::infinity());
  EXPECT_EQ(fp8_scale(1e300), std::numeric_limits<float>::infinity());
}

struct QuantizeShape {
  std::int64_t rows = 0, columns = 0;
  double size = 1;
  std::string name() const {
    return "rows" + std::to_string(rows) + "_columns" + std::to_string(columns) + (size < 1 ? "_small" : "");
  }
};

Quantized quantized_on(OpDevice& device, View x, bool values = true, bool transposed = true) {
  Quantized out{.values = {}, .transposed = {}, .scale = device.poisoned({scale_floats}, DType::f32)};
  if (values) out.values = device.poisoned(x.shape, DType::e4m3);
  if (transposed) out.transposed = device.poisoned({x.shape[1], x.shape[0]}, DType::e4m3);
  find_scale(device.stream(), device.context(), x, out.scale);
  quantize(device.stream(), device.context(), x, out);
  return out;
}

class QuantizeTest : public OpTest<QuantizeShape> {};

TEST_P(QuantizeTest, RoundsEveryElementInBothForms) {
  OpDevice device(precision().device);
  const Tensor in =
      rounded({{"x", random_tensor({shape().rows, shape().columns}, "x", shape().size)}}, precision().compute)["x"];
  const View x = device.put(in, precision().compute);
  double largest = 0;
  for (const double value : in.values) largest = std::max(largest, std::abs(value));
  const auto scale = static_cast<double>(fp8_scale(largest));
  for (const auto& [values, transposed] : {std::pair(true, true), {true, false}, {false, true}}) {
    const Quantized out = quantized_on(device, x, values, transposed);
    EXPECT_EQ(device.get(out.scale).values,
              (std::vector<double>{scale, static_cast<double>(static_cast<float>(largest)), 0, 0}));
    Tensor expected{x.shape, {}}, turned{{x.shape[1], x.shape[0]}, std::vector<double>(in.values.size())};
    for (const double value : in.values)
      expected.values.push_back(static_cast<double>(static_cast<float>(Float8(value / scale))));
    for (std::int64_t row = 0; row < shape().rows; ++row) {
      for (std::int64_t column = 0; column < shape().columns; ++column) {
        turned.values[static_cast<std::size_t>(column * shape().rows + row)] =
            expected.values[static_cast<std::size_t>(row * shape().columns + column)];
      }
    }
    if (values) {
      EXPECT_EQ(device.get(out.values).values, expected.values);
    }
    if (transposed) {
      EXPECT_EQ(device.get(out.transposed).values, turned.values);
    }
  }
}

// In one pass over x: beside either form and both, where there is something to add to and where there is not.
TEST_P(QuantizeTest, SumsOfRowsAreOfWhatIsNotRounded) {
  OpDevice device(precision().device);
  const Tensor in =
      rounded({{"x", random_tensor({shape().rows, shape().columns}, "x", shape().size)}}, precision().compute)["x"];
  const View x = device.put(in, precision().compute);
  const Tensor before =
      rounded({{"sums", random_tensor({shape().columns}, "sums", shape().size)}}, precision().gradient)["sums"];
  for (const bool accumulate : {false, true}) {
    Tensor expected{{shape().columns}, std::vector<double>(before.values.size())};
    for (std::int64_t column = 0; column < shape().columns; ++column) {
      double& sum = expected.values[static_cast<std::size_t>(column)];
      if (accumulate) sum = before.values[static_cast<std::size_t>(column)];
      for (std::int64_t row = 0; row < shape().rows; ++row)
        sum += in.values[static_cast<std::size_t>(row * shape().columns + column)];
    }
    for (const auto& [values, transposed] : {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
      Quantized out = quantized_on(device, x, values, transposed);
      const Tensor without = values ? device.get(out.values) : Tensor(),
                   turned = transposed ? device.get(out.transposed) : Tensor();
      const View sums = device.put(before, precision().gradient);
      quantize(device.stream(), device.context(), x, out, {.out = sums, .accumulate = accumulate});
      expect_close({{"sums", device.get(sums)}}, {{"sums", expected}}, precision());
      if (values) {
        EXPECT_EQ(device.get(out.values).values, without.values);
      }
      if (transposed) {
        EXPECT_EQ(device.get(out.transposed).values, turned.values);
      }
    }
  }
}

TEST_P(QuantizeTest, ActivationFunctionsFindTheScaleOfWhatTheyWrite) {
  OpDevice device(precision().device);
  const std::int64_t rows = shape().rows, columns = shape().columns;
  const DType type = precision().compute;
  const auto put = [&](const char* name, std::int64_t of) {
    return device.put(random_tensor({rows, of}, name, shape().size), type);
  };
  const View x = put("x", columns), dy = put("dy", columns), gate_up = put("gate_up", 2 * columns);
  const auto check = [&](const char* what, Shape written, const std::function<void(View, View)>& run) {
    const View with = device.poisoned(written, type), without = device.poisoned(written, type);
    const View found = device.poisoned({scale_floats}, DType::f32), expected = device.poisoned({scale_floats}, DType::f32);
    run(without, View());
    find_scale(device.stream(), device.context(), without, expected);
    for (int again = 0; again < 2; ++again) {  // what one leaves behind is what the next needs
      run(with, found);
      EXPECT_EQ(device.get(found).values, device.get(expected).values) << what;
      EXPECT_EQ(device.get(with).values, device.get(without).values) << what;
    }
  };
  StreamRef s = device.stream();
  OpContext& context = device.context();
  check("gelu", x.shape, [&](View y, View scale) { gelu_forward(s, context, x, y, scale); });
  check("dgelu", x.shape, [&](View dx, View scale) { gelu_backward(s, context, x, dy, dx, scale); });
  check("swiglu", x.shape, [&](View y, View scale) { swiglu_forward(s, context, gate_up, y, scale); });
  check("dswiglu", gate_up.shape, [&](View dx, View scale) { swiglu_backward(s, context, gate_up, dy, dx, {}, scale); });
  Tensor broken = random_tensor({rows, columns}, "x", shape().size);
  broken.values.back() = std::nan("");
  const View found = device.poisoned({scale_floats}, DType::f32);
  gelu_forward(s, context, device.put(broken, type), device.poisoned(x.shape, type), found);
  EXPECT_EQ(device.get(found).values, (std::vector<double>{infinity, infinity, 0, 0}));
}

TEST_P(QuantizeTest, OneFormGivesTheOther) {
  OpDevice device(precision().device);
  const View x = device.put(random_tensor({shape().rows, shape().columns}, "x", shape().size), precision().compute);
  const Quantized both = quantized_on(device, x, true, true);
  const View turned = device.poisoned(both.transposed.shape, DType::e4m3), back = device.poisoned(x.shape, DType::e4m3);
  transpose(device.stream(), device.context(), both.values, turned);
  transpose(device.stream(), device.context(), turned, back);
  EXPECT_EQ(device.get(turned).values, device.get(both.transposed).values);
  EXPECT_EQ(device.get(back).values, device.get(both.values).values);
}

TEST_P(QuantizeTest, SumsOfRowsAreThoseThatItFindsOnTheWay) {
  OpDevice device(precision().device);
  const Tensor in = random_tensor({shape().rows, shape().columns}, "x", shape().size);
  const View x = device.put(in, precision().compute);
  for (const bool accumulate : {false, true}) {
    const Tensor before = random_tensor({shape().columns}, "before");
    const View alone = device.put(before, precision().gradient), with = device.put(before, precision().gradient);
    sum_rows(device.stream(), device.context(), x, {.out = alone, .accumulate = accumulate});
    const Quantized out = quantized_on(device, x, true, true);
    quantize(device.stream(), device.context(), x, out, {.out = with, .accumulate = accumulate});
    expect_close({{"sums", device.get(alone)}}, {{"sums", device.get(with)}}, precision());
  }
}

// The same bits as from what gelu_forward() writes.
TEST_P(QuantizeTest, MakesGeluWhileItRounds) {
  OpDevice device(precision().device);
  const Tensor in = random_tensor({shape().rows, shape().columns}, "x", shape().size);
  const View x = device.put(in, precision().compute), y = device.poisoned(x.shape, precision().compute);
  gelu_forward(device.stream(), device.context(), x, y);
  const Quantized expected = quantized_on(device, y);
  for (const auto& [values, transposed] : {std::pair(true, true), {true, false}, {false, true}}) {
    Quantized out{.values = {}, .transposed = {}, .scale = device.poisoned({scale_floats}, DType::f32)};
    if (values) out.values = device.poisoned(x.shape, DType::e4m3);
    if (transposed) out.transposed = device.poisoned({x.shape[1], x.shape[0]}, DType::e4m3);
    for (int again = 0; again < 2; ++again) find_scale(device.stream(), device.context(), x, out.scale, OperandOf::gelu);
    quantize(device.stream(), device.context(), x, out, {}, OperandOf::gelu);
    EXPECT_EQ(device.get(out.scale).values, device.get(expected.scale).values);
    if (values) {
      EXPECT_EQ(device.get(out.values).values, device.get(expected.values).values);
    }
    if (transposed) {
      EXPECT_EQ(device.get(out.transposed).values, device.get(expected.transposed).values);
    }
  }
  const auto scale_with = [&](const Tensor& x_with) {
    const View found = device.poisoned({scale_floats}, DType::f32);
    find_scale(device.stream(), device.context(), device.put(x_with, precision().compute), found, OperandOf::gelu);
    return device.get(found).values;
  };
  for (const double value : {std::nan(""), std::copysign(std::nan(""), -1.0), infinity, -infinity}) {
    Tensor broken = in;
    broken.values.back() = value;
    EXPECT_EQ(scale_with(broken), (std::vector<double>{infinity, infinity, 0, 0})) << value;
  }
  // Wherever the largest is, and whatever has been seen before it.
  for (const bool ascending : {true, false}) {
    Tensor sorted = in;
    std::ranges::sort(sorted.values);
    if (!ascending) std::ranges::reverse(sorted.values);
    EXPECT_EQ(scale_with(sorted), device.get(expected.scale).values);
  }
  // Where nothing is positive, the largest is where gelu is least; and far below it is nothing at all.
  for (const auto& [x_of_all, x_of_one, largest] :
       {std::tuple(-0.0, -0.75, 0.170), {-3.0, -0.75, 0.170}, {-8.0, 0.01, 0.00504}, {-1e30, -40.0, 0.0}}) {
    Tensor small = in;
    std::ranges::fill(small.values, x_of_all);
    small.values[small.values.size() / 3] = x_of_one;
    EXPECT_NEAR(scale_with(small)[1], largest, 0.001) << x_of_all;
  }
}

// Of more tensors than one kernel takes, of several shapes: the same bits as of each by itself.
TEST_P(QuantizeTest, TakesManyTensorsAtOnce) {
  OpDevice device(precision().device);
  std::vector<QuantizedTensor> all;
  std::vector<Quantized> expected;
  for (int i = 0; i < 21; ++i) {
    const std::int64_t rows = 16 * (1 + i % 5), columns = i % 4 == 0 ? shape().columns : 16 * (1 + i % 7);
    const View x =
        device.put(random_tensor({rows, columns}, "x" + std::to_string(i), std::ldexp(shape().size, i)), precision().compute);
    expected.push_back(quantized_on(device, x));
    all.push_back({x,
                   {.values = device.poisoned(x.shape, DType::e4m3),
                    .transposed = device.poisoned({columns, rows}, DType::e4m3),
                    .scale = device.poisoned({scale_floats}, DType::f32)}});
  }
  for (int again = 0; again < 2; ++again) find_scales(device.stream(), device.context(), all);
  quantize_all(device.stream(), device.context(), all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(device.get(all[i].out.scale).values, device.get(expected[i].scale).values) << i;
    EXPECT_EQ(device.get(all[i].out.values).values, device.get(expected[i].values).values) << i;
    EXPECT_EQ(device.get(all[i].out.transposed).values, device.get(expected[i].transposed).values) << i;
  }
}

TEST_P(QuantizeTest, WhatIsNotFiniteStaysSo) {
  OpDevice device(precision().device);
  for (const double value : {infinity, -infinity, std::nan("")}) {
    Tensor in = random_tensor({32, 32}, "x");
    in.values[517] = value;
    const View x = device.put(in, precision().compute);
    const Quantized x8 = quantized_on(device, x),
                    w8 = quantized_on(device, device.put(random_tensor({16, 32}, "w"), precision().compute));
    EXPECT_EQ(device.get(x8.scale).values, (std::vector<double>{infinity, infinity, 0, 0}));
    LinearForward args;
    args.x = x, args.w = device.put(random_tensor({16, 32}, "w"), precision().compute);
    args.y = device.poisoned({32, 16}, precision().compute);
    args.x8 = x8, args.w8 = w8;
    linear_forward(device.stream(), device.context(), args);
    for (const double y : device.get(args.y).values) EXPECT_FALSE(std::isfinite(y));
  }
}

// A product of quantized operands is that of what they stand for.
Tensor unrounded(OpDevice& device, const Quantized& quantized) {
  Tensor tensor = device.get(quantized.values);
  const double scale = device.get(quantized.scale).values[0];
  for (double& value : tensor.values) value *= scale;
  return tensor;
}

TEST_P(QuantizeTest, ProductsAreOfTheRoundedOperands) {
  const std::int64_t rows = shape().rows, in = shape().columns, out = 48;
  const DType type = precision().compute;
  Tensors tensors = rounded({{"x", random_tensor({rows, in}, "x", shape().size)},
                             {"w", random_tensor({out, in}, "w", 1e-3)},
                             {"dy", random_tensor({rows, out}, "dy", 30)},
                             {"bias", random_tensor({out}, "bias", shape().size * 1e-2)},
                             {"residual", random_tensor({rows, out}, "residual", shape().size * 1e-2)},
                             {"pre", random_tensor({rows, in}, "pre")}},
                            type);
  OpDevice device(precision().device), host(DeviceKind::host);
  const auto put = [&](const char* name) { return device.put(tensors.at(name), type); };
  const View x = put("x"), w = put("w"), dy = put("dy");
  const Quantized x8 = quantized_on(device, x), w8 = quantized_on(device, w), dy8 = quantized_on(device, dy);
  const View exact_x = host.put(unrounded(device, x8), DType::f64), exact_w = host.put(unrounded(device, w8), DType::f64),
             exact_dy = host.put(unrounded(device, dy8), DType::f64);
  const auto exact = [&](const char* name) { return host.put(tensors.at(name), DType::f64); };

  Tensors got, expected;
  for (const bool gelu : {false, true}) {
    const auto run = [&](OpDevice& on, DType of, View x_, View w_, View bias, View residual, bool fp8) {
      LinearForward args{.x = x_,
                         .w = w_,
                         .bias = bias,
                         .residual = gelu ? View() : residual,
                         .y = on.poisoned({rows, out}, of),
                         .pre_activation = gelu ? on.poisoned({rows, out}, of) : View(),
                         .epilogue = gelu ? Epilogue::gelu : Epilogue::none};
      if (fp8) args.x8 = x8, args.w8 = w8;
      linear_forward(on.stream(), on.context(), args);
      return on.get(args.y);
    };
    const std::string name = gelu ? "y through gelu" : "y";
    got[name] = run(device, type, x, w, put("bias"), put("residual"), true);
    expected[name] = run(host, DType::f64, exact_x, exact_w, exact("bias"), exact("residual"), false);
  }
  for (const bool gelu : {false, true}) {
    const auto run = [&](OpDevice& on, DType of, View dy_, View w_, View pre, bool fp8) {
      LinearBackwardInput args{.dy = dy_, .w = w_, .pre_activation = gelu ? pre : View(), .dx = on.poisoned({rows, in}, of)};
      if (fp8) args.dy8 = dy8, args.w8 = w8;
      linear_backward_input(on.stream(), on.context(), args);
      return on.get(args.dx);
    };
    const std::string name = gelu ? "dx through gelu" : "dx";
    got[name] = run(device, type, dy, w, put("pre"), true);
    expected[name] = run(host, DType::f64, exact_dy, exact_w, exact("pre"), false);
  }
  const auto ones = [](Shape of) { return Tensor{of, std::vector<double>(static_cast<std::size_t>(of.elements()), 1.0)}; };
  const auto run = [&](OpDevice& on, DType gradient, View dy_, View x_, bool fp8) {
    LinearBackwardWeight args{.dy = dy_,
                              .x = x_,
                              .dw = on.put(ones({out, in}), gradient),
                              .dbias = on.put(ones({out}), gradient),
                              .accumulate = true};
    if (fp8) args.dy8 = dy8, args.x8 = x8;
    linear_backward_weight(on.stream(), on.context(), args);
    return std::pair(on.get(args.dw), on.get(args.dbias));
  };
  std::tie(got["dw"], got["dbias"]) = run(device, precision().gradient, dy, x, true);
  // The bias' gradient is of dy as it was.
  std::tie(expected["dw"], expected["dbias"]) = run(host, DType::f64, exact_dy, exact_x, false);
  expected["dbias"] = run(host, DType::f64, exact("dy"), exact("x"), false).second;
  expect_close(got, expected, precision());
}

std::vector<Precision> fp8_gpu_precisions() {
  std::vector<Precision> all = gpu_precisions();
  std::erase_if(all, [](const Precision& p) { return p.compute != DType::bf16; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Host, QuantizeTest,
                         testing::ValuesIn(cases<QuantizeShape>(host_precisions(), {{32, 64}, {7, 5, 1e-6}})), case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, QuantizeTest,
                         testing::ValuesIn(cases<QuantizeShape>(fp8_gpu_precisions(),
                                                                {{64, 64}, {48, 176, 1e-6}, {512, 1040}, {2064, 304}})),
                         case_name);

}  // namespace
}  // namespace plait::ops
