// Element types, with 16-bit and 8-bit types for host code.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace plait {

// f16 is only for stored weights; nothing computes with it. e4m3 is only for operands of matrix products (ops/quantize.h).
enum class DType : std::uint8_t { f32, f64, bf16, i32, u8, f16, e4m3 };

std::size_t size_of(DType dtype);         // bytes per element
std::string_view to_string(DType dtype);  // "f32", "bf16", ...
DType dtype_from(std::string_view name);  // accepts "f32"/"fp32", "f64"/"fp64", "bf16"; ConfigError otherwise

// bfloat16 storage for host code: the upper half of a float, rounded to nearest even. Arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40u);  // keep a NaN a NaN
    } else {
      bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

// IEEE 754 binary16 storage for host code, rounded to nearest even.
struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);  // from 65520 on: infinity
  explicit operator float() const;
};

// FP8 storage for host code, E4M3 of the OCP's "8-bit floating point specification": rounded to nearest even, at most 448, no
// infinity. Larger values become 448; infinities and NaN become NaN.
struct Float8 {
  static constexpr double largest = 448;
  std::uint8_t bits = 0;
  Float8() = default;
  explicit Float8(double value);
  explicit operator float() const;
};

// The DType of a host element type: dtype_of<float> == DType::f32.
template <typename T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType");
  return DType::u8;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<Float16> = DType::f16;
template <>
inline constexpr DType dtype_of<Float8> = DType::e4m3;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

}  // namespace plait
