// Moments in bf16: which random numbers round them, that rounding has no bias, and that an element has the same bits wherever
// it lies.
#include "ops/moment_rounding.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "ops/adamw.h"
#include "ops/op_test.h"

namespace plait::ops {
namespace {

TEST(RoundedBy, RoundsUpAsOftenAsWhatIsLeftOutSays) {
  for (const float value : {1.0f, 1.0000001f, -0.3f, 3.14159265f, 1e-30f, -7.7e30f, 1e-40f, 0.0f, -0.0f}) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    std::uint32_t ups = 0;
    double sum = 0;
    for (std::uint32_t random = 0; random < 0x10000u; ++random) {
      const BFloat16 rounded = rounded_by(value, random);
      const std::uint32_t up = rounded.bits - (bits >> 16);
      ASSERT_LE(up, 1u) << value << " to a neighbour only";
      ups += up;
      sum += static_cast<double>(static_cast<float>(rounded));
    }
    EXPECT_EQ(ups, bits & 0xffffu) << value;
    EXPECT_EQ(sum / 0x10000, static_cast<double>(value)) << "the mean is the number itself";
  }
}

TEST(RoundedBy, KeepsWhatIsFiniteFiniteAndTheRestWhatItIs) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max(), of_bf16 = std::bit_cast<float>(0x7f7f0000u);
  for (const std::uint32_t random : {0u, 1u, 0x8000u, 0xffffu}) {
    EXPECT_EQ(static_cast<float>(rounded_by(largest, random)), of_bf16);
    EXPECT_EQ(static_cast<float>(rounded_by(-largest, random)), -of_bf16);
    EXPECT_EQ(static_cast<float>(rounded_by(inf, random)), inf);
    EXPECT_EQ(static_cast<float>(rounded_by(-inf, random)), -inf);
    for (const std::uint32_t nan : {0x7fc00000u, 0x7f800001u, 0xff800001u, 0xffffffffu})
      EXPECT_TRUE(std::isnan(static_cast<float>(rounded_by(std::bit_cast<float>(nan), random))));
    EXPECT_EQ(rounded_by(-0.0f, random).bits, 0x8000u);
  }
}

// Each half of the words is uniform and knows nothing of the other, of neighbours, of the update and of the parameter.
TEST(RoundingWords, AreUniformAndIndependent) {
  constexpr std::int64_t quads = 1 << 15;
  constexpr double count = 4.0 * quads;
  const auto half = [](std::uint32_t bits) { return (static_cast<double>(bits & 0xffffu) + 0.5) / 65536 - 0.5; };
  double sums[2] = {}, of_bits[32] = {}, together[4] = {};
  for (std::int64_t quad = 0; quad < quads; ++quad) {
    const PhiloxBlock words = rounding_words(17, 3, quad), next = rounding_words(17, 4, quad),
                      other = rounding_words(18, 3, quad);
    for (std::size_t i = 0; i < 4; ++i) {
      const double low = half(words[i]), high = half(words[i] >> 16);
      sums[0] += low, sums[1] += high;
      for (unsigned bit = 0; bit < 32; ++bit) of_bits[bit] += (words[i] >> bit) & 1u;
      together[0] += low * high;
      together[1] += low * half(words[(i + 1) % 4]);
      together[2] += low * half(next[i]);
      together[3] += low * half(other[i]);
    }
  }
  // Five standard deviations: of a uniform number √(1/12), of a product of two 1/12, of a bit 1/2.
  for (const double sum : sums) EXPECT_LT(std::abs(sum), 5 * std::sqrt(count / 12));
  for (const double product : together) EXPECT_LT(std::abs(product), 5 * std::sqrt(count) / 12);
  for (const double ones : of_bits) EXPECT_LT(std::abs(ones - count / 2), 5 * std::sqrt(count) / 2);
}

TEST(RoundingWords, TellAllThatMayDiffer) {
  std::set<PhiloxBlock> seen;
  const std::int64_t numbers[] = {0, 1, std::int64_t{1} << 32};
  for (const std::int64_t key : numbers) {
    for (const std::int64_t update : numbers) {
      for (const std::int64_t quad : numbers) seen.insert(rounding_words(static_cast<std::uint64_t>(key), update, quad));
    }
  }
  EXPECT_EQ(seen.size(), 27u);
}

TEST(ElementNumbers, WalkTheRowsOfAColumnBlock) {
  // Columns 2 to 4 of rows of 10, from the second of them in row 1: 13, 14, 22, 23, 24, 32 ...
  const ElementNumbers numbers{.key = 5, .first = 13, .column = 1, .columns = 3, .skip = 7};
  std::int64_t expected = 13;
  for (std::int64_t k = 0; k < 100; ++k) {
    EXPECT_EQ(numbers.of(k), expected);
    for (const std::int64_t more : {0, 1, 2, 50}) EXPECT_EQ(numbers.from(k).of(more), numbers.of(k + more));
    expected += expected % 10 == 4 ? 8 : 1;
  }
  EXPECT_EQ(ElementNumbers({.first = 9}).of(8), 17);
}

// --- the update ---

struct MomentCase {
  std::string label;
  std::int64_t elements = 0;
  std::vector<AdamWRange> ranges;
  std::string name() const { return label; }
};

constexpr std::uint64_t some_key = 0x123456789abcdefu;

MomentCase consecutive(std::int64_t elements, std::int64_t first) {
  return {"from" + std::to_string(first) + "_of" + std::to_string(elements),
          elements,
          {{0, 0, 0, elements, true, {.key = some_key, .first = first}}}};
}

// A block of columns, as a rank of a tensor group has of a row-parallel matrix.
MomentCase column_block(std::int64_t elements, std::int32_t columns, std::int32_t skip, std::int32_t column) {
  return {"columns" + std::to_string(columns) + "_skip" + std::to_string(skip) + "_at" + std::to_string(column) + "_of" +
              std::to_string(elements),
          elements,
          {{0,
            0,
            0,
            elements,
            false,
            {.key = some_key, .first = (std::int64_t{1} << 33) + column, .column = column, .columns = columns, .skip = skip}}}};
}

// Several ranges at places of their own that no vector access fits.
MomentCase scattered() {
  return {"scattered",
          9000,
          {{3, 5, 7, 4100, true, {.key = some_key, .first = 1}},
           {4111, 4207, 4301, 4096, false, {.key = some_key + 1, .first = 2}}}};
}

constexpr UpdateSettings moment_settings{
    .update = 1, .lr = 0.02f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-6f, .weight_decay = 0.1f, .clip = 0};

// Buffers of a case, and updates of them one by one.
class Updates {
 public:
  Updates(const Precision& p, const MomentCase& c, DType moments) : p_(p), c_(c), device_(p.device) {
    const Tensor weights = rounded({{"w", random_tensor({c.elements}, "weights")}}, p.compute).at("w");
    const Tensor zeros{{c.elements}, std::vector<double>(static_cast<std::size_t>(c.elements), 0.0)};
    args_.table = device_.put(adamw_table(c.ranges, moments));
    args_.master = device_.put(weights, DType::f32);
    args_.weights = device_.put(weights, p.compute);
    args_.m = device_.put(zeros, moments);
    args_.v = device_.put(zeros, moments);
    args_.optimizer_state = device_.put(
        Tensor{{optimizer_state_floats}, std::vector<double>(static_cast<std::size_t>(optimizer_state_floats), 0.0)},
        DType::f32);
  }

  void set_moments(const Tensor& m, const Tensor& v) {
    args_.m = device_.put(m, args_.m.dtype);
    args_.v = device_.put(v, args_.v.dtype);
  }

  void update(std::int64_t update, const Tensor& gradients, float beta2 = moment_settings.beta2) {
    args_.gradients = device_.put(gradients, p_.gradient);
    UpdateSettings settings = moment_settings;
    settings.update = update, settings.beta2 = beta2;
    const UpdateCoefficients coefficients = update_coefficients(settings);
    std::vector<std::uint8_t> bytes(sizeof(coefficients));
    std::memcpy(bytes.data(), &coefficients, sizeof(coefficients));
    const auto number = [&](double value) { return device_.put(Tensor{{1}, {value}}, DType::f32); };
    norm_to_clip(device_.stream(), {.sum_of_squares = number(1),
                                    .loss = number(1),
                                    .ignored = number(0),
                                    .targets = 1,
                                    .update = static_cast<const UpdateCoefficients*>(device_.put(bytes).data),
                                    .optimizer_state = args_.optimizer_state});
    adamw(device_.stream(), args_);
    device_.stream().synchronize();
  }

  Tensors state() {
    return {{"m", device_.get(args_.m)},
            {"v", device_.get(args_.v)},
            {"master", device_.get(args_.master)},
            {"weights", device_.get(args_.weights)}};
  }

 private:
  Precision p_;
  MomentCase c_;
  OpDevice device_;
  AdamW args_;
};

class Bf16Moments : public OpTest<MomentCase> {};

// Every moment is what double comes to, rounded by the element's own number. What float makes of it may be a little less or
// more, and where that moves it across the number, a neighbour is right too.
TEST_P(Bf16Moments, AreTheDefinitionsRoundedByTheElementsOwnNumber) {
  Updates updates(precision(), shape(), DType::bf16);
  const double b1 = static_cast<double>(moment_settings.beta1), b2 = static_cast<double>(moment_settings.beta2),
               rate = static_cast<double>(moment_settings.lr), epsilon = static_cast<double>(moment_settings.epsilon);
  constexpr double float_error = 0x1p-21;
  std::int64_t moments = 0, between = 0;
  for (std::int64_t step = 1; step <= 3; ++step) {
    const Tensor g =
        rounded({{"g", random_tensor({shape().elements}, "gradients" + std::to_string(step), 0.5)}}, precision().gradient)
            .at("g");
    const Tensors before = updates.state();
    updates.update(step, g);
    const Tensors after = updates.state();
    for (const AdamWRange& range : shape().ranges) {
      for (std::int64_t k = 0; k < range.count; ++k) {
        const auto s = static_cast<std::size_t>(range.state_offset + k);
        const double gradient = g.values[static_cast<std::size_t>(range.gradient_offset + k)];
        const double old_m = before.at("m").values[s], old_v = before.at("v").values[s];
        const double m = b1 * old_m + (1 - b1) * gradient, v = b2 * old_v + (1 - b2) * gradient * gradient;
        const std::int64_t number = range.numbers.of(k);
        const std::uint32_t word = rounding_words(range.numbers.key, step, number / 4)[static_cast<std::size_t>(number % 4)];
        const auto expect = [&](const char* name, double exact, double terms, std::uint32_t random) {
          const double got = after.at(name).values[s];
          const auto rounded = [&](double value) {
            return static_cast<double>(static_cast<float>(rounded_by(static_cast<float>(value), random)));
          };
          const double low = rounded(exact - float_error * terms), high = rounded(exact + float_error * terms);
          ASSERT_TRUE(low <= got && got <= high) << name << "[" << s << "] after step " << step << " is " << got << ", not "
                                                 << low << " to " << high << " of " << exact;
          ++moments;
          between += low != high ? 1 : 0;
        };
        expect("m", m, std::abs(b1 * old_m) + std::abs((1 - b1) * gradient), word & 0xffffu);
        expect("v", v, v, word >> 16);
        // The update itself goes by what was not rounded yet.
        const double m_hat = m / (1 - std::pow(b1, static_cast<double>(step))),
                     v_hat = v / (1 - std::pow(b2, static_cast<double>(step)));
        const double old = before.at("master").values[s];
        const double decay = range.decay ? static_cast<double>(moment_settings.weight_decay) : 0.0;
        const double master = old - rate * (m_hat / (std::sqrt(v_hat) + epsilon) + decay * old);
        ASSERT_NEAR(after.at("master").values[s], master, 1e-6 * (std::abs(master) + 1)) << s << " after step " << step;
        ASSERT_EQ(after.at("weights").values[static_cast<std::size_t>(range.offset + k)],
                  round_to(precision().compute, after.at("master").values[s]));
      }
    }
  }
  EXPECT_LT(static_cast<double>(between), 1e-2 * static_cast<double>(moments) + 3) << "nearly all are certain";
}

std::vector<MomentCase> moment_cases() {
  return {consecutive(1, 0),
          consecutive(5003, 0),
          consecutive(8193, 4098),
          column_block(5000, 8, 24, 0),
          column_block(4999, 512, 512, 4),
          column_block(6000, 7, 3, 5),
          column_block(5000, 6, 2, 0),
          column_block(5000, 1, 9, 0),
          column_block(12288, 96, 32, 2),
          scattered()};
}

INSTANTIATE_TEST_SUITE_P(Host, Bf16Moments, testing::ValuesIn(cases<MomentCase>(host_precisions(), moment_cases())), case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Bf16Moments, testing::ValuesIn(cases<MomentCase>(gpu_precisions(), moment_cases())), case_name);

// A parameter in one piece, and the same elements in pieces elsewhere, as shards and other buckets have them.
TEST_P(Bf16Moments, DoNotDependOnWhereAnElementLies) {
  const MomentCase& whole = shape();
  MomentCase pieces{"pieces", 2 * whole.elements + 8 * 16, {}};
  std::vector<std::pair<std::int64_t, std::int64_t>> moved;  // from, to
  std::int64_t at = 3;
  for (const AdamWRange& range : whole.ranges) {
    for (std::int64_t done = 0, size = 1; done < range.count; done += size, size = size * 3 + 2) {
      size = std::min(size, range.count - done);
      pieces.ranges.push_back({at, at, at, size, range.decay, range.numbers.from(done)});
      for (std::int64_t k = 0; k < size; ++k) moved.emplace_back(range.state_offset + done + k, at + k);
      at += size + 5;
    }
  }
  ASSERT_LE(at, pieces.elements);
  const auto gradients_of = [&](std::int64_t step) {
    return random_tensor({whole.elements}, "gradients" + std::to_string(step), 0.5);
  };
  Updates here(precision(), whole, DType::bf16), there(precision(), pieces, DType::bf16);
  for (std::int64_t step = 1; step <= 2; ++step) {
    // The same gradient for the same element of the state.
    const Tensor values = gradients_of(step);
    Tensor at_here{{whole.elements}, std::vector<double>(values.values.size(), 0.0)};
    Tensor at_there{{pieces.elements}, std::vector<double>(static_cast<std::size_t>(pieces.elements), 0.0)};
    for (const AdamWRange& range : whole.ranges) {
      for (std::int64_t k = 0; k < range.count; ++k) {
        at_here.values[static_cast<std::size_t>(range.gradient_offset + k)] =
            values.values[static_cast<std::size_t>(range.state_offset + k)];
      }
    }
    for (const auto& [from, to] : moved)
      at_there.values[static_cast<std::size_t>(to)] = values.values[static_cast<std::size_t>(from)];
    here.update(step, at_here);
    there.update(step, at_there);
  }
  const Tensors a = here.state(), b = there.state();
  for (const char* name : {"m", "v"}) {
    for (const auto& [from, to] : moved) {
      ASSERT_EQ(a.at(name).values[static_cast<std::size_t>(from)], b.at(name).values[static_cast<std::size_t>(to)])
          << name << " of element " << from;
    }
  }
}

class Bf16MomentValues : public OpTest<MomentCase> {};

// With beta2 = 0.999 the last updates move v by less than half a step of bf16: rounding to nearest would leave it where it was.
TEST_P(Bf16MomentValues, FollowAMeanThatMovesInSmallSteps) {
  constexpr float slow = 0.999f;
  constexpr std::int64_t steps = 1500;
  Updates updates(precision(), shape(), DType::bf16);
  const auto elements = static_cast<std::size_t>(shape().elements);
  const Tensor g{{shape().elements}, std::vector<double>(elements, 0.5)};
  auto nearest = BFloat16(0.0f);
  for (std::int64_t step = 1; step <= steps; ++step) {
    updates.update(step, g, slow);
    nearest = BFloat16(slow * static_cast<float>(nearest) + (1 - slow) * 0.25f);
  }
  const double expected = 0.25 * (1 - std::pow(static_cast<double>(slow), static_cast<double>(steps)));
  const std::vector<double> v = updates.state().at("v").values;
  double mean = 0, spread = 0;
  for (const double value : v) mean += value / static_cast<double>(elements);
  for (const double value : v) spread += (value - mean) * (value - mean) / static_cast<double>(elements);
  // Each of the last 1 / (1 - beta2) roundings, two of which beta2 weighs as one, adds a variance of at most (step / 2)², where
  // a step is at most 2^-7 of the number.
  const double deviation = expected * 0x1p-8 * std::sqrt(0.5 / (1 - static_cast<double>(slow)));
  EXPECT_NEAR(mean, expected, 5 * deviation / std::sqrt(static_cast<double>(elements)));
  EXPECT_LT(std::sqrt(spread), deviation);
  EXPECT_GT(spread, 0) << "elements are rounded by numbers of their own";
  EXPECT_LT(static_cast<double>(static_cast<float>(nearest)), 0.8 * expected) << "which this test would notice";
}

TEST_P(Bf16MomentValues, OfNumbersAtTheEndsOfTheRange) {
  const auto n = static_cast<std::size_t>(shape().elements);
  const double most = static_cast<double>(std::bit_cast<float>(0x7f7f0000u)), least = 0x1p-133;
  const auto filled = [&](double value) { return Tensor{{shape().elements}, std::vector<double>(n, value)}; };
  Updates updates(precision(), shape(), DType::bf16);
  // m: above the largest bf16 and still a float; v: not.
  updates.set_moments(filled(most), filled(most));
  updates.update(1, filled(3.4e38));
  const auto expect_all = [&](const char* name, auto is) {
    const std::vector<double> values = updates.state().at(name).values;
    for (const double value : values) ASSERT_TRUE(is(value)) << name << " is " << value;
  };
  expect_all("m", [&](double x) { return x == most; });
  expect_all("v", [](double x) { return x == HUGE_VAL; });
  // Halves of the smallest number become it or nothing.
  updates.set_moments(filled(0), filled(-0.0));
  updates.update(2, filled(0));
  expect_all("m", [](double x) { return x == 0; });
  expect_all("v", [](double x) { return x == 0; });
  updates.set_moments(filled(-least), filled(least));
  updates.update(3, filled(0));
  expect_all("m", [&](double x) { return x == 0 || x == -least; });
  expect_all("v", [&](double x) { return x == 0 || x == least; });
  const std::vector<double> m = updates.state().at("m").values;
  const auto kept = static_cast<double>(std::count(m.begin(), m.end(), -least));
  EXPECT_NEAR(kept, 0.9 * static_cast<double>(n), 5 * std::sqrt(0.09 * static_cast<double>(n)));
  updates.update(4, filled(std::nan("")));
  expect_all("m", [](double x) { return std::isnan(x); });
  expect_all("v", [](double x) { return std::isnan(x); });
}

INSTANTIATE_TEST_SUITE_P(Host, Bf16MomentValues,
                         testing::ValuesIn(cases<MomentCase>({host_precisions()[0]}, {consecutive(4096, 0)})), case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Bf16MomentValues,
                         testing::ValuesIn(cases<MomentCase>({gpu_precisions()[0]}, {consecutive(4096, 0)})), case_name);

class SomeMoments : public OpTest<MomentCase> {};

// All that differs is what moments are rounded to: the first update has none to read.
TEST_P(SomeMoments, TheFirstUpdateIsThatOfFp32Moments) {
  Updates narrow(precision(), shape(), DType::bf16), wide(precision(), shape(), DType::f32);
  const Tensor g = random_tensor({shape().elements}, "gradients", 0.5);
  narrow.update(1, g);
  wide.update(1, g);
  Tensors a = narrow.state(), b = wide.state();
  EXPECT_EQ(a.at("master").values, b.at("master").values);
  EXPECT_EQ(a.at("weights").values, b.at("weights").values);
  EXPECT_NE(a.at("m").values, b.at("m").values);
}

INSTANTIATE_TEST_SUITE_P(Host, SomeMoments, testing::ValuesIn(cases<MomentCase>(host_precisions(), {consecutive(5003, 0)})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, SomeMoments, testing::ValuesIn(cases<MomentCase>(gpu_precisions(), {consecutive(5003, 0)})),
                         case_name);

}  // namespace
}  // namespace plait::ops
