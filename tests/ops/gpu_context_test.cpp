// What only the CUDA context does: timing matrix products, handing its choices on, deterministic mode, and the paths for shapes
// that the fused kernels do not take.
#include <cmath>

#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/op_test.h"

namespace plait::ops {
namespace {

class GpuContextTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda_device_count(&why) == 0) GTEST_SKIP() << "needs a GPU: " << why;
  }
};

Tensors linear_tensors(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {
      {"x", random_tensor({rows, in}, "x")}, {"w", random_tensor({out, in}, "w", 0.2)}, {"bias", random_tensor({out}, "bias")}};
}

Tensor forward_on(OpDevice& device, DType dtype, const Tensors& in, Epilogue epilogue = Epilogue::none) {
  LinearForward args;
  args.x = device.put(in.at("x"), dtype);
  args.w = device.put(in.at("w"), dtype);
  args.bias = device.put(in.at("bias"), dtype);
  args.y = device.poisoned({in.at("x").shape[0], in.at("w").shape[0]}, dtype);
  args.epilogue = epilogue;
  if (epilogue == Epilogue::gelu) args.pre_activation = device.poisoned(args.y.shape, dtype);
  linear_forward(device.stream(), device.context(), args);
  return device.get(args.y);
}

TEST_F(GpuContextTest, AdoptedChoicesGiveTheSameBitsWithoutTuning) {
  const Tensors in = linear_tensors(512, 768, 2304);
  OpDevice tuned(DeviceKind::cuda);
  const Tensor expected = forward_on(tuned, DType::bf16, in);
  std::vector<std::string> choices = tuned.context().choices();
  ASSERT_EQ(choices.size(), 1u);

  OpDevice untuned(DeviceKind::cuda);
  untuned.context().set_tuning(false);
  static_cast<void>(forward_on(untuned, DType::bf16, in));
  EXPECT_EQ(untuned.context().untuned_shapes(), 1);

  OpDevice adopting(DeviceKind::cuda);
  EXPECT_EQ(adopting.context().adopt_choices(choices), 0);
  adopting.context().set_tuning(false);
  EXPECT_EQ(forward_on(adopting, DType::bf16, in).values, expected.values);
  EXPECT_EQ(adopting.context().untuned_shapes(), 0);
}

TEST_F(GpuContextTest, UnusableChoicesAreCounted) {
  OpDevice device(DeviceKind::cuda);
  static_cast<void>(forward_on(device, DType::f32, linear_tensors(64, 64, 64)));
  std::string other_device = device.context().choices().at(0);
  other_device.insert(other_device.find(' ') + 1, "another-");
  EXPECT_EQ(device.context().adopt_choices({"", "nonsense", other_device}), 3);
}

// Where sums cancel, parts of a product that are rounded before they are added show.
TEST_F(GpuContextTest, ProductsOfBf16AreSummedInFloat) {
  for (const std::int64_t rows : {16, 256}) {
    constexpr std::int64_t in = 16384, out = 256;
    Tensors tensors = linear_tensors(rows, in, out);
    for (double& x : tensors["x"].values) x = 0.5 + std::abs(std::fmod(x, 0.5));
    for (std::size_t i = 0; i < tensors["w"].values.size(); ++i)
      tensors["w"].values[i] = static_cast<std::int64_t>(i) % in < in / 2 ? 1 : -1;
    tensors = rounded(std::move(tensors), DType::bf16);
    OpDevice device(DeviceKind::cuda), host(DeviceKind::host);
    const Tensor got = forward_on(device, DType::bf16, tensors), expected = forward_on(host, DType::f64, tensors);
    for (std::size_t i = 0; i < got.values.size(); ++i) {
      ASSERT_NEAR(got.values[i], expected.values[i], std::abs(expected.values[i]) / 256 + 0.02)
          << rows << " rows, element " << i << ", by " << device.context().choices().at(0);
    }
  }
}

TEST_F(GpuContextTest, DimsThatNoFusedEpilogueTakes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::gelu}) {
      const Tensors in = rounded(linear_tensors(33, 21, 35), dtype);
      OpDevice device(DeviceKind::cuda), host(DeviceKind::host);
      const Precision bounds = gpu_precisions()[dtype == DType::f32 ? 0 : 1];
      expect_close({{"y", forward_on(device, dtype, in, epilogue)}}, {{"y", forward_on(host, DType::f64, in, epilogue)}},
                   bounds);
    }
  }
}

TEST_F(GpuContextTest, DeterministicAttentionGivesTheSameBits) {
  const AttentionShape s{4, 512, 12, 2, 128};
  const Shape packed{s.batch * s.sequence, (s.heads + 2 * s.kv_heads) * s.head_dim},
      narrow{s.batch * s.sequence, s.heads * s.head_dim};
  OpDevice device(DeviceKind::cuda, {.deterministic = true});
  AttentionBackward args;
  args.shape = s;
  args.qkv = device.put(random_tensor(packed, "qkv"), DType::bf16);
  args.dout = device.put(random_tensor(narrow, "dout"), DType::bf16);
  args.out = device.poisoned(narrow, DType::bf16);
  args.lse = device.poisoned({s.batch, s.heads, s.sequence}, DType::f32);
  args.dqkv = device.poisoned(packed, DType::bf16);
  attention_forward(device.stream(), device.context(), {s, args.qkv, {}, args.out, args.lse});
  attention_backward(device.stream(), device.context(), args);
  const std::vector<std::uint8_t> first = device.get_bytes(args.dqkv);
  for (int run = 0; run < 3; ++run) {
    attention_backward(device.stream(), device.context(), args);
    EXPECT_EQ(device.get_bytes(args.dqkv), first) << "run " << run;
  }
}

// 50257 columns are no multiple of a 16-byte access: the row is streamed.
TEST_F(GpuContextTest, CrossEntropyOfUnalignedRows) {
  constexpr std::int64_t rows = 5, vocab = 50257;
  const Tensor logits = rounded({{"logits", random_tensor({rows, vocab}, "logits", 3.0)}}, DType::bf16).at("logits");
  const std::vector<std::int32_t> targets = random_indices(rows, vocab, "targets");
  const auto run = [&](DeviceKind kind, DType dtype) {
    OpDevice device(kind);
    const CrossEntropy args{.logits = device.put(logits, dtype),
                            .targets = device.put(targets),
                            .losses = device.poisoned({rows}, dtype == DType::f64 ? DType::f64 : DType::f32),
                            .vocab = vocab,
                            .scale = 0.5f};
    cross_entropy(device.stream(), args);
    return Tensors{{"losses", device.get(args.losses)}, {"gradient", device.get(args.logits)}};
  };
  const Tensors got = run(DeviceKind::cuda, DType::bf16), expected = run(DeviceKind::host, DType::f64);
  expect_close("losses", got.at("losses"), expected.at("losses"), 1e-5, 5e-5);
  expect_close("gradient", got.at("gradient"), expected.at("gradient"), 4e-3, 2e-2);
}

// Wider than the registers of one block hold.
TEST_F(GpuContextTest, NormOfLongRows) {
  constexpr std::int64_t rows = 37;
  for (const std::int64_t dim : {5120, 10000, 9001}) {
    const Tensors in = rounded({{"x", random_tensor({rows, dim}, "x")},
                                {"gamma", random_tensor({dim}, "gamma", 0.2, 1.0)},
                                {"beta", random_tensor({dim}, "beta")},
                                {"dy", random_tensor({rows, dim}, "dy")},
                                {"dresidual", random_tensor({rows, dim}, "dresidual")}},
                               DType::bf16);
    const auto run = [&](DeviceKind kind, DType dtype, DType gradient) {
      OpDevice device(kind);
      const DType statistic = dtype == DType::f64 ? DType::f64 : DType::f32;
      NormForward forward{.x = {device.put(in.at("x"), dtype)},
                          .bias = {},
                          .gamma = device.put(in.at("gamma"), dtype),
                          .beta = device.put(in.at("beta"), dtype),
                          .residual = {},
                          .y = device.poisoned({rows, dim}, dtype),
                          .mean = device.poisoned({rows}, statistic),
                          .rstd = device.poisoned({rows}, statistic)};
      norm_forward(device.stream(), device.context(), forward);
      NormBackward backward{.x = forward.x.front(),
                            .gamma = forward.gamma,
                            .mean = forward.mean,
                            .rstd = forward.rstd,
                            .dy = {device.put(in.at("dy"), dtype)},
                            .dresidual = device.put(in.at("dresidual"), dtype),
                            .dx = device.poisoned({rows, dim}, dtype),
                            .dgamma = device.poisoned({dim}, gradient),
                            .dbeta = device.poisoned({dim}, gradient)};
      norm_backward(device.stream(), device.context(), backward);
      return Tensors{{"y", device.get(forward.y)},
                     {"dx", device.get(backward.dx)},
                     {"dgamma", device.get(backward.dgamma)},
                     {"dbeta", device.get(backward.dbeta)}};
    };
    expect_close(run(DeviceKind::cuda, DType::bf16, DType::f32), run(DeviceKind::host, DType::f64, DType::f64),
                 gpu_precisions()[1]);
  }
}

}  // namespace
}  // namespace plait::ops
