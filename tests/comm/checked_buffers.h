// Device buffers that a test fills with a pattern of elements of any type, and compares with another one.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/device.h"
#include "core/dtype.h"
#include "core/stream.h"

namespace plait::comm::test {

inline void write_element(DType dtype, void* data, std::int64_t i, double value) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[i] = static_cast<float>(value); return;
    case DType::f64: static_cast<double*>(data)[i] = value; return;
    case DType::bf16: static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(value)); return;
    case DType::f16: static_cast<Float16*>(data)[i] = Float16(static_cast<float>(value)); return;
    case DType::i32: static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(value); return;
    case DType::u8: static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(value); return;
    case DType::e4m3: static_cast<Float8*>(data)[i] = Float8(value); return;
  }
}

inline double read_element(DType dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::f64: return static_cast<const double*>(data)[i];
    case DType::bf16: return static_cast<float>(static_cast<const BFloat16*>(data)[i]);
    case DType::f16: return static_cast<float>(static_cast<const Float16*>(data)[i]);
    case DType::i32: return static_cast<const std::int32_t*>(data)[i];
    case DType::u8: return static_cast<const std::uint8_t*>(data)[i];
    case DType::e4m3: return static_cast<float>(static_cast<const Float8*>(data)[i]);
  }
  return 0;
}

class CheckedBuffers {
 public:
  // Every buffer holds `bytes` and a guard behind them.
  CheckedBuffers(Device device, std::size_t bytes)
      : stream_(device),
        memory_(device),
        bytes_(bytes + guard_bytes),
        host_(memory_.allocate(bytes_, MemoryKind::pinned_host)) {}

  StreamRef stream() const { return stream_; }
  Buffer allocate() { return memory_.allocate(bytes_); }

  // What the failures of the checks to come are about.
  void describe(std::string what) { what_ = std::move(what); }

  template <typename Value>
  void upload(Buffer& to, DType dtype, std::int64_t count, Value value) {
    std::memset(host_.data(), guard_value, bytes_);
    for (std::int64_t i = 0; i < count; ++i) write_element(dtype, host_.data(), i, value(i));
    stream().copy(to.data(), host_.data(), bytes_);
    stream().synchronize();
  }

  const void* download(const Buffer& from) {
    stream().copy(host_.data(), from.data(), bytes_);
    stream().synchronize();
    return host_.data();
  }

  template <typename Value>
  void expect(const Buffer& result, DType dtype, std::int64_t first, std::int64_t count, Value value) {
    download(result);
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(read_element(dtype, host_.data(), first + i), value(i)) << what_ << ", element " << i;
    }
  }

  void expect_guard(const Buffer& result, DType dtype, std::int64_t count) {
    const auto* byte = static_cast<const unsigned char*>(download(result)) + static_cast<std::size_t>(count) * size_of(dtype);
    for (std::size_t i = 0; i < guard_bytes; ++i) ASSERT_EQ(byte[i], guard_value) << what_ << ": wrote past the end";
  }

 private:
  static constexpr std::size_t guard_bytes = 64;
  static constexpr unsigned char guard_value = 0xa5;

  Stream stream_;
  DeviceMemory memory_;
  std::size_t bytes_;
  Buffer host_;
  std::string what_;
};

}  // namespace plait::comm::test
