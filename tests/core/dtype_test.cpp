// Element types and the rounding of bfloat16.
#include "core/dtype.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace plait {
namespace {

float rounded(float value) { return static_cast<float>(BFloat16(value)); }

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::f64), 8u);
  EXPECT_EQ(size_of(DType::bf16), sizeof(BFloat16));
  EXPECT_EQ(size_of(DType::i32), 4u);
  EXPECT_EQ(size_of(DType::u8), 1u);
  EXPECT_EQ(to_string(DType::bf16), "bf16");
  EXPECT_EQ(to_string(DType::u8), "u8");
}

TEST(DTypeTest, ReadsBothSpellingsAndNamesWhatItDoesNotKnow) {
  EXPECT_EQ(dtype_from("f32"), DType::f32);
  EXPECT_EQ(dtype_from("fp32"), DType::f32);
  EXPECT_EQ(dtype_from("fp64"), DType::f64);
  EXPECT_EQ(dtype_from("bf16"), DType::bf16);
  try {
    static_cast<void>(dtype_from("fp8"));
    FAIL() << "fp8 is no element type";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("fp8"), testing::HasSubstr("fp32, fp64 or bf16")));
  }
}

TEST(BFloat16Test, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    BFloat16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const float wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(rounded(wide))) << bits;
    } else {
      EXPECT_EQ(BFloat16(wide).bits, bits);
    }
  }
}

TEST(BFloat16Test, RoundsToNearestAndTiesToEven) {
  constexpr float step = 0x1p-7f;                         // spacing of bfloat16 in [1, 2)
  EXPECT_EQ(rounded(1 + step / 2), 1.0f);                 // tie: 1 is even
  EXPECT_EQ(rounded(1 + step + step / 2), 1 + 2 * step);  // tie: 1 + 2 steps is even
  EXPECT_EQ(rounded(1 + step / 2 + 0x1p-20f), 1 + step);
  EXPECT_EQ(rounded(1 + step / 2 - 0x1p-20f), 1.0f);
  EXPECT_EQ(rounded(-(1 + step / 2)), -1.0f);
  EXPECT_EQ(rounded(2 - 0x1p-20f), 2.0f);  // the carry reaches the exponent
}

TEST(BFloat16Test, KeepsInfinityNanAndSignsAndOverflowsToInfinity) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(rounded(infinity), infinity);
  EXPECT_EQ(rounded(-infinity), -infinity);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), infinity);
  EXPECT_TRUE(std::signbit(rounded(-0.0f)));
  EXPECT_EQ(rounded(-0.0f), 0.0f);
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(bits)))) << std::hex << bits;  // not rounded to infinity
  }
  EXPECT_EQ(BFloat16().bits, 0);
}

TEST(BFloat16Test, ErrorIsAtMostHalfAStep) {
  for (float value = 1e-30f; value < 1e30f; value *= 1.0371f) {
    EXPECT_LE(std::abs(rounded(value) - value), value * 0x1p-8f) << value;
    EXPECT_EQ(rounded(-value), -rounded(value));
  }
}

TEST(Float16Test, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(wide))));
    } else {
      EXPECT_EQ(Float16(wide).bits, bits);
    }
  }
}

TEST(Float16Test, RoundsToTheNearestOfItsValuesAndTiesToEven) {
  for (std::uint32_t bits = 0; bits + 1 < 0x7c00; ++bits) {  // of each two neighbours, also where numbers lose their width
    Float16 low, high;
    low.bits = static_cast<std::uint16_t>(bits), high.bits = static_cast<std::uint16_t>(bits + 1);
    const float a = static_cast<float>(low), b = static_cast<float>(high), middle = a + (b - a) / 2;
    EXPECT_EQ(Float16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(Float16(std::nextafter(middle, 0.0F)).bits, bits);
    EXPECT_EQ(Float16(std::nextafter(middle, b)).bits, bits + 1);
    EXPECT_EQ(Float16(-middle).bits, Float16(middle).bits | 0x8000);
  }
}

TEST(Float16Test, KnowsItsLimits) {
  EXPECT_EQ(static_cast<float>(Float16(1.0F)), 1.0F);
  EXPECT_EQ(static_cast<float>(Float16(65519.996F)), 65504.0F);
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(65520.0F))));
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(1e30F))));
  EXPECT_EQ(static_cast<float>(Float16(std::ldexp(1.0F, -24))), std::ldexp(1.0F, -24));
  EXPECT_EQ(Float16(std::ldexp(1.0F, -25)).bits, 0);
  EXPECT_EQ(size_of(DType::f16), sizeof(Float16));
}

// By looking at all numbers there are.
std::uint8_t nearest_float8(double value) {
  std::uint8_t nearest = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint8_t bits = 0; bits < 0x7f; ++bits) {
    Float8 candidate;
    candidate.bits = bits;
    const double away = std::abs(std::abs(value) - static_cast<double>(static_cast<float>(candidate)));
    if (away < least || (away == least && bits % 2 == 0)) least = away, nearest = bits;
  }
  return static_cast<std::uint8_t>(nearest | (std::signbit(value) ? 0x80 : 0));
}

TEST(Float8Test, EveryValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 256; ++bits) {
    Float8 value;
    value.bits = static_cast<std::uint8_t>(bits);
    const auto wide = static_cast<float>(value);
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(wide));
    } else {
      EXPECT_EQ(Float8(static_cast<double>(wide)).bits, bits);
    }
  }
}

TEST(Float8Test, RoundsToTheNearestAndTiesToEven) {
  double value = 1e-4;
  for (int n = 0; n < 4000; ++n, value *= 1.0043) {
    EXPECT_EQ(Float8(value).bits, nearest_float8(value)) << value;
    EXPECT_EQ(Float8(-value).bits, nearest_float8(-value)) << value;
  }
  for (int bits = 0; bits + 1 < 0x7f; ++bits) {
    Float8 a, b;
    a.bits = static_cast<std::uint8_t>(bits), b.bits = static_cast<std::uint8_t>(bits + 1);
    const double middle = (static_cast<double>(static_cast<float>(a)) + static_cast<double>(static_cast<float>(b))) / 2;
    EXPECT_EQ(Float8(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(Float8(std::nextafter(middle, 0.0)).bits, bits);
    EXPECT_EQ(Float8(std::nextafter(middle, 1e3)).bits, bits + 1);
  }
}

TEST(Float8Test, KnowsItsLimits) {
  EXPECT_EQ(static_cast<float>(Float8(1.0)), 1.0F);
  for (const double large : {448.0, 460.0, 464.0, 1e30, 1e300}) EXPECT_EQ(static_cast<float>(Float8(large)), 448.0F) << large;
  EXPECT_EQ(static_cast<float>(Float8(std::ldexp(1.0, -9))), std::ldexp(1.0F, -9));
  EXPECT_EQ(Float8(std::ldexp(1.0, -10)).bits, 0);
  EXPECT_EQ(Float8(-0.0).bits, 0x80);
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8(std::numeric_limits<double>::infinity()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8(std::nan("")))));
  EXPECT_EQ(size_of(DType::e4m3), sizeof(Float8));
}

}  // namespace
}  // namespace plait
