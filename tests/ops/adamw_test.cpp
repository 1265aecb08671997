#include "ops/adamw.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "ops/op_test.h"

namespace plait::ops {
namespace {

// A flat buffer of `elements` weights; the optimizer state holds the shard [state_first, state_first + state_elements) of it,
// as ZeRO-1 keeps it. Segments name elements of that shard only. The gradients are a buffer of their own, as under ZeRO-2.
struct AdamWCase {
  std::string label;
  std::int64_t elements = 0, gradient_elements = 0, state_first = 0, state_elements = 0;
  std::vector<AdamWRange> segments;
  std::string name() const { return label; }
};

AdamWCase whole(std::int64_t elements) {
  const std::int64_t cut = elements / 3;
  return {"whole" + std::to_string(elements),
          elements,
          elements,
          0,
          elements,
          {{0, 0, 0, cut, true}, {cut, cut, cut, elements - cut, false}}};
}

// Gaps between the segments, which must stay as they are, and state offsets that differ from the weights'.
AdamWCase shard(std::int64_t elements) {
  const std::int64_t first = elements / 4, count = elements / 2;
  return {
      "shard" + std::to_string(elements),
      elements,
      elements,
      first,
      count,
      {{first, first, 0, count / 3, true}, {first + count / 2, first + count / 2, count / 2, count - count / 2 - 5, false}}};
}

// Three different offsets: the shard's gradients stand `gradient_first` elements into a buffer of their own.
AdamWCase gradient_shard(std::int64_t elements, std::int64_t gradient_first) {
  AdamWCase c = shard(elements);
  c.label = "gradient_" + c.label + "_from" + std::to_string(gradient_first);
  c.gradient_elements = gradient_first + c.state_elements;
  for (AdamWRange& s : c.segments) s.gradient_offset = gradient_first + s.state_offset;
  return c;
}

constexpr float lr = 0.02f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-6f, weight_decay = 0.1f;

struct AdamWRun {
  Tensors tensors;
  Tensor state;
};

constexpr std::int64_t targets = 40;  // of a step

// In the device's memory.
const UpdateCoefficients* put_update(OpDevice& device, const UpdateSettings& settings) {
  const UpdateCoefficients update = update_coefficients(settings);
  std::vector<std::uint8_t> bytes(sizeof(update));
  std::memcpy(bytes.data(), &update, sizeof(update));
  return static_cast<const UpdateCoefficients*>(device.put(bytes).data);
}

View fresh_state(OpDevice& device) {
  return device.put(Tensor{{optimizer_state_floats}, std::vector<double>(optimizer_state_floats, 0.0)}, DType::f32);
}

// What comes before the update in an OptimizerState.
Tensor measured(OpDevice& device, const View& state) {
  Tensor all = device.get(state);
  all.values.resize(5);
  all.shape = {5};
  return all;
}

// `steps` updates with gradients of their own; sum_of_squares, loss and ignored stand for what a step reduces.
AdamWRun run_adamw(const Precision& p, const AdamWCase& c, int steps, float clip, double sum_of_squares, double loss,
                   bool weights_are_master = false, double ignored = 0) {
  OpDevice device(p.device);
  const DType state_type = p.compute == DType::f64 ? DType::f64 : DType::f32;
  const Tensor weights = rounded({{"w", random_tensor({c.elements}, "weights")}}, p.compute).at("w");
  Tensor master{{c.state_elements}, {}};
  for (std::int64_t i = 0; i < c.state_elements; ++i)
    master.values.push_back(weights.values[static_cast<std::size_t>(c.state_first + i)]);
  Tensor zeros = master;
  std::fill(zeros.values.begin(), zeros.values.end(), 0.0);

  AdamW args;
  args.table = device.put(adamw_table(c.segments));
  args.master = device.put(master, state_type);
  args.m = device.put(zeros, state_type);
  args.v = device.put(zeros, state_type);
  args.weights = weights_are_master ? args.master : device.put(weights, p.compute);
  args.optimizer_state = fresh_state(device);
  const auto number = [&](double value) { return device.put(Tensor{{1}, {value}}, state_type); };
  NormToClip sums{.sum_of_squares = number(sum_of_squares),
                  .loss = number(loss),
                  .ignored = number(ignored),
                  .targets = targets,
                  .update = nullptr,
                  .optimizer_state = args.optimizer_state};
  for (int step = 1; step <= steps; ++step) {
    args.gradients = device.put(random_tensor({c.gradient_elements}, "gradients" + std::to_string(step), 0.5), p.gradient);
    sums.update = put_update(device, {.update = step,
                                      .lr = lr,
                                      .beta1 = beta1,
                                      .beta2 = beta2,
                                      .epsilon = epsilon,
                                      .weight_decay = weight_decay,
                                      .clip = clip});
    norm_to_clip(device.stream(), sums);
    adamw(device.stream(), args);
  }
  return {{{"weights", device.get(args.weights)},
           {"master", device.get(args.master)},
           {"m", device.get(args.m)},
           {"v", device.get(args.v)}},
          measured(device, args.optimizer_state)};
}

// Algorithm 2 of the paper, element by element, in double.
Tensors adamw_by_definition(const Precision& p, const AdamWCase& c, int steps, double gradient_factor) {
  Tensors t;
  t["weights"] = rounded({{"w", random_tensor({c.elements}, "weights")}}, p.compute).at("w");
  const Shape state_shape{c.state_elements};
  t["m"] = t["v"] = t["master"] = Tensor{state_shape, std::vector<double>(static_cast<std::size_t>(c.state_elements), 0.0)};
  for (std::int64_t i = 0; i < c.state_elements; ++i) {
    t["master"].values[static_cast<std::size_t>(i)] = t["weights"].values[static_cast<std::size_t>(c.state_first + i)];
  }
  const double b1 = static_cast<double>(beta1), b2 = static_cast<double>(beta2), rate = static_cast<double>(lr);
  for (int step = 1; step <= steps; ++step) {
    const Tensor gradients =
        rounded({{"g", random_tensor({c.gradient_elements}, "gradients" + std::to_string(step), 0.5)}}, p.gradient).at("g");
    for (const AdamWRange& segment : c.segments) {
      for (std::int64_t k = 0; k < segment.count; ++k) {
        const auto i = static_cast<std::size_t>(segment.offset + k), s = static_cast<std::size_t>(segment.state_offset + k);
        const double g = gradients.values[static_cast<std::size_t>(segment.gradient_offset + k)] * gradient_factor;
        double& m = t["m"].values[s];
        double& v = t["v"].values[s];
        double& master = t["master"].values[s];
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        const double m_hat = m / (1 - std::pow(b1, step)), v_hat = v / (1 - std::pow(b2, step));
        master -= rate * (m_hat / (std::sqrt(v_hat) + static_cast<double>(epsilon)) +
                          (segment.decay ? static_cast<double>(weight_decay) : 0.0) * master);
        t["weights"].values[i] = round_to(p.compute, master);
      }
    }
  }
  return t;
}

class AdamWTest : public OpTest<AdamWCase> {};

TEST_P(AdamWTest, MatchesItsDefinition) {
  // sqrt(64) = 8 against a clip of 2: gradients are quartered.
  const AdamWRun got = run_adamw(precision(), shape(), 3, 2.0f, 64.0, 3.5);
  const Tensors expected = adamw_by_definition(precision(), shape(), 3, 0.25);
  for (const char* name : {"master", "m", "v"}) expect_close(name, got.tensors.at(name), expected.at(name), 2e-6, 2e-5);
  expect_close("weights", got.tensors.at("weights"), expected.at("weights"), precision().norm_error, precision().largest_error);
  EXPECT_EQ(got.state.values, (std::vector<double>{8.0, 0.25, 0.0, 3.5, 0.0}));
}

TEST_P(AdamWTest, FollowsTheMeanOverTheTargetsThatCount) {
  // 10 of 40 count: the norm is 4 * 8 against a clip of 2.
  const AdamWRun got = run_adamw(precision(), shape(), 3, 2.0f, 64.0, 3.5, false, 30);
  const Tensors expected = adamw_by_definition(precision(), shape(), 3, 0.25);
  for (const char* name : {"master", "m", "v"}) expect_close(name, got.tensors.at(name), expected.at(name), 2e-6, 2e-5);
  EXPECT_EQ(got.state.values, (std::vector<double>{32.0, 0.25, 0.0, 14.0, 30.0}));
  const AdamWRun unclipped = run_adamw(precision(), shape(), 1, 0.0f, 64.0, 3.5, false, 30);
  const Tensors four_times = adamw_by_definition(precision(), shape(), 1, 4);
  for (const char* name : {"m", "v"}) expect_close(name, unclipped.tensors.at(name), four_times.at(name), 2e-6, 2e-5);
}

TEST_P(AdamWTest, DoesNothingWhereNoTargetCounts) {
  const AdamWRun got = run_adamw(precision(), shape(), 2, 1.0f, 0.0, 0.0, false, targets);
  EXPECT_EQ(got.state.values, (std::vector<double>{0.0, 0.0, 0.0, 0.0, targets}));
  const Tensors before = adamw_by_definition(precision(), shape(), 0, 1.0);
  for (const char* name : {"master", "m", "v", "weights"})
    EXPECT_EQ(got.tensors.at(name).values, before.at(name).values) << name;
  EXPECT_EQ(run_adamw(precision(), shape(), 1, 1.0f, std::nan(""), 0.0, false, targets).state.values[2], 1.0)
      << "what is not finite is still found";
}

TEST_P(AdamWTest, WhatNoSegmentNamesStaysAsItIs) {
  const AdamWCase& c = shape();
  const Tensor before = rounded({{"w", random_tensor({c.elements}, "weights")}}, precision().compute).at("w");
  const Tensor after = run_adamw(precision(), c, 2, 0.0f, 64.0, 1.0).tensors.at("weights");
  std::vector<bool> named(static_cast<std::size_t>(c.elements), false);
  for (const AdamWRange& s : c.segments) std::fill_n(named.begin() + s.offset, s.count, true);
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i]) continue;
    ASSERT_EQ(after.values[i], before.values[i]) << "weight " << i;
  }
}

TEST_P(AdamWTest, ANormThatIsNotFiniteHaltsTheUpdate) {
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    const AdamWRun got = run_adamw(precision(), shape(), 1, 1.0f, bad, 1.0);
    EXPECT_EQ(got.state.values[2], 1.0);
    EXPECT_EQ(got.tensors.at("weights").values, adamw_by_definition(precision(), shape(), 0, 1.0).at("weights").values);
  }
  EXPECT_EQ(run_adamw(precision(), shape(), 1, 1.0f, 1.0, std::nan("")).state.values[2], 1.0) << "a loss that is not a number";
}

INSTANTIATE_TEST_SUITE_P(Host, AdamWTest,
                         testing::ValuesIn(cases<AdamWCase>(host_precisions(),
                                                            {whole(1), whole(5003), shard(10007), gradient_shard(4003, 3)})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, AdamWTest,
                         testing::ValuesIn(cases<AdamWCase>(gpu_precisions(),
                                                            {whole(1), whole(4097), whole(1000003), shard(300011),
                                                             gradient_shard(320000, 16), gradient_shard(4096, 3)})),
                         case_name);

TEST(AdamWHostTest, DoubleMatchesItsDefinition) {
  const AdamWCase c = gradient_shard(103, 2);
  const Precision f64{DeviceKind::host, DType::f64, DType::f64, 0, 0};
  const AdamWRun got = run_adamw(f64, c, 4, 0.0f, 9.0, 1.0);
  const Tensors expected = adamw_by_definition(f64, c, 4, 1.0);
  for (const char* name : {"master", "m", "v", "weights"})
    expect_close(name, got.tensors.at(name), expected.at(name), 1e-14, 1e-14);
}

class AdamWAliasTest : public OpTest<AdamWCase> {};

TEST_P(AdamWAliasTest, WeightsMayBeTheMaster) {
  const Tensors apart = run_adamw(precision(), shape(), 3, 2.0f, 64.0, 3.5).tensors;
  const Tensors together = run_adamw(precision(), shape(), 3, 2.0f, 64.0, 3.5, true).tensors;
  expect_same_bits(apart, together);
}

INSTANTIATE_TEST_SUITE_P(Host, AdamWAliasTest, testing::Values(OpCase<AdamWCase>{host_precisions()[0], whole(5003)}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, AdamWAliasTest, testing::Values(OpCase<AdamWCase>{gpu_precisions()[0], whole(5003)}), case_name);

class ClipTest : public OpTest<AdamWCase> {};

TEST_P(ClipTest, HaltedStaysAndSmallNormsAreNotScaled) {
  OpDevice device(precision().device);
  const View state = fresh_state(device);
  const auto step = [&](double squares, double loss, float clip) {
    const auto number = [&](double value) { return device.put(Tensor{{1}, {value}}, DType::f32); };
    norm_to_clip(device.stream(), {.sum_of_squares = number(squares),
                                   .loss = number(loss),
                                   .ignored = number(0),
                                   .targets = targets,
                                   .update = put_update(device, {.clip = clip}),
                                   .optimizer_state = state});
    return measured(device, state).values;
  };
  EXPECT_EQ(step(0.25, 2.0, 1.0f), (std::vector<double>{0.5, 1.0, 0.0, 2.0, 0.0}));
  EXPECT_EQ(step(100.0, 2.0, 0.0f)[1], 1.0) << "clip 0 means off";
  EXPECT_EQ(step(HUGE_VAL, 2.0, 1.0f)[2], 1.0);
  EXPECT_EQ(step(0.25, 2.0, 1.0f)[2], 1.0) << "halted stays";
}

INSTANTIATE_TEST_SUITE_P(Host, ClipTest, testing::Values(OpCase<AdamWCase>{host_precisions()[0], whole(1)}), case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ClipTest, testing::Values(OpCase<AdamWCase>{gpu_precisions()[0], whole(1)}), case_name);

// One element, written out: settings that change from update to update have the bits that they would have as arguments.
TEST(AdamWHostTest, EveryUpdateHasItsOwnSettingsToTheBit) {
  OpDevice device(DeviceKind::host);
  AdamW args;
  args.table = device.put(adamw_table({{0, 0, 0, 1, true}}));
  args.weights = args.master = device.put(Tensor{{1}, {0.75}}, DType::f32);
  args.m = device.put(Tensor{{1}, {0}}, DType::f32);
  args.v = device.put(Tensor{{1}, {0}}, DType::f32);
  args.optimizer_state = fresh_state(device);
  const auto number = [&](double value) { return device.put(Tensor{{1}, {value}}, DType::f32); };
  float m = 0, v = 0, master = 0.75f;
  for (int step = 1; step <= 12; ++step) {
    const UpdateSettings s{.update = step,
                           .lr = 1e-2f / static_cast<float>(step),
                           .beta1 = 0.9f - 0.01f * static_cast<float>(step),
                           .beta2 = 0.95f,
                           .epsilon = 1e-8f * static_cast<float>(step),
                           .weight_decay = 0.1f * static_cast<float>(step),
                           .clip = 0};
    const float g = 0.3f - 0.05f * static_cast<float>(step);
    args.gradients = number(static_cast<double>(g));
    norm_to_clip(device.stream(), {.sum_of_squares = number(1),
                                   .loss = number(1),
                                   .ignored = number(0),
                                   .targets = targets,
                                   .update = put_update(device, s),
                                   .optimizer_state = args.optimizer_state});
    adamw(device.stream(), args);
    const auto correction = [&](float beta) {
      return static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(step))));
    };
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    const float direction = m * correction(s.beta1) / (std::sqrt(v * correction(s.beta2)) + s.epsilon);
    master -= s.lr * (direction + s.weight_decay * master);
    ASSERT_EQ(device.get(args.master).values[0], static_cast<double>(master)) << "update " << step;
  }
  EXPECT_THROW(update_coefficients({.update = 0}), InternalError);
}

TEST(AdamWHostTest, TheTableHasTheSizeThatIsSaid) {
  for (const std::int64_t count : {0, 1, 4095, 4096, 4097, 3 * 4096 + 5}) {
    const std::vector<AdamWRange> segments = {{.count = count}, {.offset = count, .count = 7}};
    for (const DType moments : {DType::f32, DType::bf16})
      EXPECT_EQ(adamw_table_bytes(segments, moments), adamw_table(segments, moments).size()) << count;
  }
}

TEST(AdamWHostTest, ASegmentOutsideTheBuffersStopsTheStream) {
  for (const AdamWRange& outside : {AdamWRange{5, 0, 0, 6}, AdamWRange{0, 5, 0, 6}, AdamWRange{0, 0, 5, 6}}) {
    AdamWCase c = whole(10);
    c.segments.push_back(outside);
    EXPECT_THROW(run_adamw(host_precisions()[0], c, 1, 0.0f, 1.0, 1.0), InternalError);
  }
}

}  // namespace
}  // namespace plait::ops
