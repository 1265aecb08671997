#include "ops/norm.h"

#include "ops/quantize.h"

#include "ops/op_test.h"

namespace plait::ops {
namespace {

struct NormShape {
  NormKind kind = NormKind::layer_norm;
  std::int64_t rows = 0, dim = 0;
  bool beta = false;
  int more = 0;  // addends beside x; with two or more a bias too
  bool dresidual = false, accumulate = false;
  int dy_parts = 1;
  bool bias() const { return more > 1; }
  std::string name() const {
    return std::string(kind == NormKind::layer_norm ? "layer" : "rms") + "_rows" + std::to_string(rows) + "_dim" +
           std::to_string(dim) + (beta ? "_beta" : "") + (more > 0 ? "_more" + std::to_string(more) : "") +
           (dresidual ? "_dresidual" : "") + (accumulate ? "_accumulate" : "") +
           (dy_parts > 1 ? "_parts" + std::to_string(dy_parts) : "");
  }
};

std::string addend(int k) { return "addend" + std::to_string(k); }
std::string part(int k) { return k == 0 ? "dy" : "dy_part" + std::to_string(k); }

Tensors norm_inputs(const NormShape& s) {
  Tensors in;
  in["x"] = random_tensor({s.rows, s.dim}, "x", 1.5, 0.3);
  in["gamma"] = random_tensor({s.dim}, "gamma", 0.5, 1.0);
  for (int k = 0; k < s.dy_parts; ++k) in[part(k)] = random_tensor({s.rows, s.dim}, part(k).c_str());
  if (s.beta) in["beta"] = random_tensor({s.dim}, "beta");
  for (int k = 0; k < s.more; ++k) in[addend(k)] = random_tensor({s.rows, s.dim}, addend(k).c_str());
  if (s.bias()) in["bias"] = random_tensor({s.dim}, "bias");
  if (s.dresidual) in["dresidual"] = random_tensor({s.rows, s.dim}, "dresidual");
  if (s.accumulate) {
    in["present_dgamma"] = random_tensor({s.dim}, "present_dgamma", std::sqrt(static_cast<double>(s.rows)));
    in["present_dbeta"] = random_tensor({s.dim}, "present_dbeta", std::sqrt(static_cast<double>(s.rows)));
  }
  return in;
}

struct NormRun {
  Tensors forward, backward;
};

// Forward, then backward from what it stored. With dresidual, dx is written over it, as the model does. `scaled`: the scales of
// what both write, beside what find_scale() says.
NormRun run_norm(const Precision& p, const NormShape& s, const Tensors& in, bool scaled = false) {
  OpDevice device(p.device);
  const auto wanted = [&] { return scaled ? device.poisoned({scale_floats}, DType::f32) : View(); };
  const auto found = [&](View x) {
    const View scale = wanted();
    find_scale(device.stream(), device.context(), x, scale);
    return device.get(scale);
  };
  const DType dtype = p.compute, statistics = dtype == DType::f64 ? DType::f64 : DType::f32;
  const bool layer_norm = s.kind == NormKind::layer_norm;
  NormForward forward;
  forward.kind = s.kind;
  forward.x = {device.put(in.at("x"), dtype)};
  forward.gamma = device.put(in.at("gamma"), dtype);
  if (s.beta) forward.beta = device.put(in.at("beta"), dtype);
  for (int k = 0; k < s.more; ++k) forward.x.push_back(device.put(in.at(addend(k)), dtype));
  if (s.bias()) forward.bias = device.put(in.at("bias"), dtype);
  if (s.more > 0) forward.residual = device.poisoned({s.rows, s.dim}, dtype);
  forward.y = device.poisoned({s.rows, s.dim}, dtype);
  if (layer_norm) forward.mean = device.poisoned({s.rows}, statistics);
  forward.rstd = device.poisoned({s.rows}, statistics);
  forward.scale = wanted();
  norm_forward(device.stream(), device.context(), forward);

  NormBackward backward;
  backward.kind = s.kind;
  backward.x = s.more > 0 ? forward.residual : forward.x.front();
  backward.gamma = forward.gamma;
  backward.mean = forward.mean;
  backward.rstd = forward.rstd;
  for (int k = 0; k < s.dy_parts; ++k) backward.dy.push_back(device.put(in.at(part(k)), dtype));
  if (s.dresidual) backward.dresidual = device.put(in.at("dresidual"), dtype);
  backward.dx = s.dresidual ? backward.dresidual : device.poisoned({s.rows, s.dim}, dtype);
  backward.dgamma = s.accumulate ? device.put(in.at("present_dgamma"), p.gradient) : device.poisoned({s.dim}, p.gradient);
  if (s.beta)
    backward.dbeta = s.accumulate ? device.put(in.at("present_dbeta"), p.gradient) : device.poisoned({s.dim}, p.gradient);
  backward.accumulate = s.accumulate;
  backward.scale = wanted();
  norm_backward(device.stream(), device.context(), backward);

  NormRun run;
  run.forward = {{"y", device.get(forward.y)}, {"rstd", device.get(forward.rstd)}};
  if (layer_norm) run.forward["mean"] = device.get(forward.mean);
  if (s.more > 0) run.forward["residual"] = device.get(forward.residual);
  run.backward = {{"dx", device.get(backward.dx)}, {"dgamma", device.get(backward.dgamma)}};
  if (s.beta) run.backward["dbeta"] = device.get(backward.dbeta);
  if (scaled) {
    run.forward["scale"] = device.get(forward.scale), run.forward["expected scale"] = found(forward.y);
    run.backward["scale"] = device.get(backward.scale), run.backward["expected scale"] = found(backward.dx);
  }
  return run;
}

class NormTest : public OpTest<NormShape> {};

TEST_P(NormTest, MatchesTheOracle) {
  const Tensors in = rounded(norm_inputs(shape()), precision().compute);
  const NormRun got = run_norm(precision(), shape(), in), expected = run_norm(oracle, shape(), in);
  expect_close(got.forward, expected.forward, precision());
  expect_close(got.backward, expected.backward, precision());
}

TEST_P(NormTest, GivesTheSameBitsOnEveryRun) {
  const Tensors in = rounded(norm_inputs(shape()), precision().compute);
  const NormRun first = run_norm(precision(), shape(), in), second = run_norm(precision(), shape(), in);
  expect_same_bits(first.forward, second.forward);
  expect_same_bits(first.backward, second.backward);
}

// As a sum that was taken before and rounded, in the order of the parts.
TEST_P(NormTest, PartsOfAGradientGiveTheBitsOfTheirSum) {
  NormShape s = shape();
  if (s.dy_parts == 1) s.dy_parts = 3;
  Tensors in = rounded(norm_inputs(s), precision().compute);
  const Tensors parts = run_norm(precision(), s, in).backward;
  const auto add = [&](auto zero) {
    Tensor sum = in.at("dy");
    for (std::size_t i = 0; i < sum.values.size(); ++i) {
      auto value = zero;
      for (int k = 0; k < s.dy_parts; ++k) value += static_cast<decltype(zero)>(in.at(part(k)).values[i]);
      sum.values[i] = static_cast<double>(value);
    }
    return sum;
  };
  in["dy"] = precision().compute == DType::f64 ? add(0.0) : add(0.0f);
  s.dy_parts = 1;
  expect_same_bits(parts, run_norm(precision(), s, rounded(in, precision().compute)).backward);
}

constexpr NormKind layer = NormKind::layer_norm, rms = NormKind::rms_norm;

INSTANTIATE_TEST_SUITE_P(Host, NormTest,
                         testing::ValuesIn(cases<NormShape>(host_precisions(), {{layer, 7, 8, true},
                                                                                {layer, 70, 33, true, 1, true, true},
                                                                                {layer, 5, 129, false, 1},
                                                                                {layer, 6, 40, true, 4},
                                                                                {rms, 5, 17, false, 9},
                                                                                {rms, 65, 48, false, 1, true, true},
                                                                                {layer, 9, 24, true, 0, true, true, 4},
                                                                                {rms, 3, 7}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, NormTest,
                         testing::ValuesIn(cases<NormShape>(gpu_precisions(),
                                                            {{layer, 400, 776, true},
                                                             {layer, 600, 1000, true, 1, true, true},
                                                             {layer, 200, 1600, false, 1},
                                                             {layer, 512, 2560, true, 4, true, true, 2},
                                                             {layer, 1024, 2560, true, 0, true, false, 4},
                                                             {rms, 33, 1001, false, 0, false, true, 5},
                                                             {rms, 64, 4096, false, 0, true, false, most_norm_addends},
                                                             {layer, 33, 1001, true, 3},
                                                             {rms, 1024, 2560, false, 2},
                                                             {rms, 64, 4096, false, most_norm_addends - 1},
                                                             {layer, 37, 8, true, 1, true},
                                                             {rms, 400, 1000, false, 1, true, true},
                                                             {rms, 1025, 896, false, false, true},
                                                             {rms, 8, 8192}})),
                         case_name);

class NormScaleTest : public OpTest<NormShape> {};

TEST_P(NormScaleTest, IsThatOfWhatIsWritten) {
  Tensors in = rounded(norm_inputs(shape()), precision().compute);
  const NormRun without = run_norm(precision(), shape(), in);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {1.0, 700.0, infinity, std::nan("")}) {
    SCOPED_TRACE(value);
    // The largest of each is in the last row, of what is gained and of what comes past the norm.
    in.at("gamma").values.back() *= value;
    if (shape().dresidual) in.at("dresidual").values.back() *= value;
    NormRun with = run_norm(precision(), shape(), in, true);
    for (Tensors* got : {&with.forward, &with.backward}) {
      const Tensor scale = got->at("scale"), expected = got->at("expected scale");
      EXPECT_EQ(scale.values, expected.values);
      EXPECT_EQ(scale.values.front() == infinity, !std::isfinite(value));
      got->erase("scale"), got->erase("expected scale");
    }
    if (value != 1.0) continue;
    expect_same_bits(with.forward, without.forward);
    expect_same_bits(with.backward, without.backward);
  }
}

INSTANTIATE_TEST_SUITE_P(Host, NormScaleTest,
                         testing::ValuesIn(cases<NormShape>(host_precisions(), {{layer, 7, 16, true},
                                                                                {layer, 70, 48, true, 1, true, true},
                                                                                {rms, 5, 32, false, 3, true, false, 2}})),
                         case_name);
// Rows of one to sixteen packs a warp, longer ones, sums; fewer rows than blocks that run at once, and many times as many.
INSTANTIATE_TEST_SUITE_P(Gpu, NormScaleTest,
                         testing::ValuesIn(cases<NormShape>({gpu_precisions()[1]}, {{layer, 16, 32, true},
                                                                                    {rms, 400, 256, false},
                                                                                    {layer, 30001, 384, true, 0, true},
                                                                                    {layer, 8192, 768, true, 0, true},
                                                                                    {rms, 1008, 1600, false, 0, true},
                                                                                    {layer, 4096, 2560, true, 0, true},
                                                                                    {rms, 4096, 4096, false, 0, true},
                                                                                    {layer, 512, 4112, true, 0, true},
                                                                                    {layer, 512, 2560, true, 4, true, false, 4},
                                                                                    {rms, 4999, 1536, false, 1, true, false, 2},
                                                                                    {rms, 64, 16400, false, 0, true}})),
                         case_name);

TEST(NormGradientTest, MatchesCentralDifferences) {
  for (const NormShape s : {NormShape{layer, 5, 7, true, 1, true}, NormShape{layer, 4, 9, true},
                            NormShape{layer, 3, 6, false, 3}, NormShape{rms, 5, 8, false, 1, true}, NormShape{rms, 4, 7}}) {
    SCOPED_TRACE(s.name());
    const Tensors in = norm_inputs(s);
    const auto loss = [&](const Tensors& at) {
      const Tensors forward = run_norm(oracle, s, at).forward;
      const Tensor& residual = s.more > 0 ? forward.at("residual") : at.at("x");
      return dot(forward.at("y"), in.at("dy")) + (s.dresidual ? dot(residual, in.at("dresidual")) : 0.0);
    };
    const Tensors gradients = run_norm(oracle, s, in).backward;
    expect_gradient("x", in, gradients.at("dx"), loss);
    for (int k = 0; k < s.more; ++k) expect_gradient(addend(k).c_str(), in, gradients.at("dx"), loss);
    expect_gradient("gamma", in, gradients.at("dgamma"), loss);
    if (s.beta) expect_gradient("beta", in, gradients.at("dbeta"), loss);
  }
}

TEST(NormGradientTest, AccumulateAddsToWhatIsThere) {
  NormShape s{layer, 40, 9, true};
  s.accumulate = true;
  const Tensors in = norm_inputs(s);
  const Tensors sum = run_norm(oracle, s, in).backward;
  s.accumulate = false;
  const Tensors fresh = run_norm(oracle, s, in).backward;
  for (const std::string name : {"dgamma", "dbeta"}) {
    Tensor expected = fresh.at(name);
    for (std::size_t i = 0; i < expected.values.size(); ++i) expected.values[i] += in.at("present_" + name).values[i];
    expect_close(name, sum.at(name), expected, 1e-14, 1e-14);
  }
}

// A mean far from zero: a variance from E[x²] - E[x]² would lose all of its digits.
TEST(NormHostTest, VarianceSurvivesALargeMean) {
  const NormShape s{layer, 4, 96, true};
  Tensors in = norm_inputs(s);
  in["x"] = random_tensor({s.rows, s.dim}, "x", 1.0, 3000.0);
  in = rounded(in, DType::f32);
  const Precision f32{DeviceKind::host, DType::f32, DType::f32, 0, 0};
  expect_close("y", run_norm(f32, s, in).forward.at("y"), run_norm(oracle, s, in).forward.at("y"), 2e-4, 5e-4);
}

class NormAliasTest : public OpTest<NormShape> {};

TEST_P(NormAliasTest, ResidualMayBeAnAddend) {
  const NormShape& s = shape();
  const Tensors in = rounded(norm_inputs(s), precision().compute);
  const Tensors expected = run_norm(oracle, s, in).forward;
  for (const bool over_x : {true, false}) {
    OpDevice device(precision().device);
    NormForward args;
    args.kind = s.kind;
    args.x = {device.put(in.at("x"), precision().compute), device.put(in.at(addend(0)), precision().compute)};
    args.residual = over_x ? args.x.front() : args.x.back();
    args.gamma = device.put(in.at("gamma"), precision().compute);
    args.y = device.poisoned({s.rows, s.dim}, precision().compute);
    args.rstd = device.poisoned({s.rows}, DType::f32);
    norm_forward(device.stream(), device.context(), args);
    expect_close({{"y", device.get(args.y)}, {"rstd", device.get(args.rstd)}, {"residual", device.get(args.residual)}},
                 expected, precision());
  }
}

INSTANTIATE_TEST_SUITE_P(Host, NormAliasTest, testing::ValuesIn(cases<NormShape>(host_precisions(), {{rms, 9, 40, false, 1}})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, NormAliasTest,
                         testing::ValuesIn(cases<NormShape>(gpu_precisions(), {{rms, 300, 1000, false, 1}})), case_name);

}  // namespace
}  // namespace plait::ops
