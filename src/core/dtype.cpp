#include "core/dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"

namespace plait {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::bf16: return 2;
    case DType::i32: return 4;
    case DType::u8: return 1;
    case DType::f16: return 2;
    case DType::e4m3: return 1;
  }
  throw InternalError("size_of: unknown dtype");
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
    case DType::f16: return "f16";
    case DType::e4m3: return "e4m3";
  }
  throw InternalError("to_string: unknown dtype");
}

DType dtype_from(std::string_view name) {
  if (name == "f32" || name == "fp32") return DType::f32;
  if (name == "f64" || name == "fp64") return DType::f64;
  if (name == "bf16") return DType::bf16;
  throw ConfigError("unknown element type '" + std::string(name) + "': use fp32, fp64 or bf16");
}

Float16::Float16(float value) {
  const auto wide = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (wide >> 16) & 0x8000u, magnitude = wide & 0x7fffffffu;
  std::uint32_t rounded = 0;
  if (magnitude > 0x7f800000u) {
    rounded = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // a NaN stays a NaN, and quiet
  } else if (magnitude >= 0x47800000u) {               // 65536
    rounded = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14: normal. A carry goes on into the exponent, up to infinity.
    rounded = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // multiples of 2^-24, which nearbyint rounds to even
    rounded = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24)));
  }
  bits = static_cast<std::uint16_t>(sign | rounded);
}

Float16::operator float() const {
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

Float8::Float8(double value) {
  constexpr int fraction_bits = 3, bias = 7, dropped = std::numeric_limits<double>::digits - 1 - fraction_bits;
  constexpr std::uint64_t one = 1, least_normal = static_cast<std::uint64_t>(1023 + 1 - bias) << 52;
  const auto wide = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t magnitude = wide & ~(one << 63);
  std::uint64_t rounded = 0;
  if (magnitude >= std::uint64_t{0x7ff} << 52) {
    rounded = 0x7f;
  } else if (magnitude < least_normal) {  // multiples of 2^-9, which nearbyint rounds to even
    rounded = static_cast<std::uint64_t>(std::nearbyint(std::bit_cast<double>(magnitude) * 512));
  } else {  // a carry goes on into the exponent
    const std::uint64_t from_least = magnitude - least_normal + (one << 52);
    rounded =
        std::min((from_least + (one << (dropped - 1)) - 1 + ((from_least >> dropped) & 1)) >> dropped, std::uint64_t{0x7e});
  }
  bits = static_cast<std::uint8_t>((wide >> 63) << 7 | rounded);
}

Float8::operator float() const {
  const int exponent = (bits >> 3) & 0xf, fraction = bits & 0x7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                  : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  if (exponent == 0xf && fraction == 0x7) magnitude = std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace plait
