// What a sum over ranks does once their parts are here.
#include "comm/p2p/mover.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/device.h"
#include "core/philox.h"
#include "core/stream.h"

namespace plait::comm::test {
namespace {

// By kernels, on one GPU.
TEST(GpuSum, AddsPartsInOrderAsHostsDo) {
  std::string why;
  if (cuda_device_count(&why) < 1) GTEST_SKIP() << "needs a GPU: " << why;
  const Device device{DeviceKind::cuda, 0};
  DeviceMemory memory(device);
  const Stream stream(device), host(Device{});
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32}) {
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{1 << 16}, std::int64_t{(1 << 16) + 5}}) {
      for (const std::size_t parts :
           {std::size_t{1}, std::size_t{2}, std::size_t{7}, static_cast<std::size_t>(p2p::most_parts)}) {
        for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
          const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
          Buffer on_device = memory.allocate(parts * (bytes + 64));
          std::vector<std::byte> on_host(parts * bytes), there(bytes), here(bytes);
          const Random random(7, "sum");
          for (std::size_t i = 0; i < on_host.size() / size_of(dtype); ++i) {
            const auto value = static_cast<double>(random.below(2000, i, 0)) / 16 - 60;
            std::byte* at = on_host.data() + i * size_of(dtype);
            if (dtype == DType::f32) *reinterpret_cast<float*>(at) = static_cast<float>(value);
            if (dtype == DType::f64) *reinterpret_cast<double*>(at) = value;
            if (dtype == DType::bf16) *reinterpret_cast<BFloat16*>(at) = BFloat16(static_cast<float>(value));
            if (dtype == DType::i32) *reinterpret_cast<std::int32_t*>(at) = static_cast<std::int32_t>(value);
          }
          // Some begin where nothing of 16 bytes can.
          const std::size_t offset = parts % 2 == 0 ? size_of(dtype) : 0;
          std::vector<const std::byte*> device_parts, host_parts;
          for (std::size_t p = 0; p < parts; ++p) {
            auto* at = static_cast<std::byte*>(on_device.data()) + p * (bytes + 64) / 16 * 16 + offset;
            stream.ref().copy(at, on_host.data() + p * bytes, bytes);
            device_parts.push_back(at), host_parts.push_back(on_host.data() + p * bytes);
          }
          auto* out = const_cast<std::byte*>(device_parts.back());  // one of them may be the result
          p2p::combine(stream, {out, dtype, {count}}, device_parts, reduction);
          stream.ref().copy(there.data(), out, bytes);
          stream.ref().synchronize();
          p2p::combine(host, {here.data(), dtype, {count}}, host_parts, reduction);
          host.ref().synchronize();
          ASSERT_TRUE(there == here) << to_string(dtype) << ", " << count << " elements, " << parts << " parts";
        }
      }
    }
  }
}

}  // namespace
}  // namespace plait::comm::test
