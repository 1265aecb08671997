#include "comm/p2p/sum.h"

#include <cstdint>
#include <type_traits>
#include <vector>

#include "comm/reduction.h"
#include "core/error.h"

namespace plait::comm::p2p {
namespace {

template <typename T>
void combine_typed(void* out, const std::vector<const std::byte*>& parts, std::int64_t count, Reduction reduction) {
  using Sum = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
  const auto at = [&](std::size_t part, std::int64_t i) {
    return static_cast<Sum>(reinterpret_cast<const T*>(parts[part])[i]);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    Sum sum = at(0, i);
    for (std::size_t part = 1; part < parts.size(); ++part) sum = reduced(reduction, sum, at(part, i));
    static_cast<T*>(out)[i] = static_cast<T>(sum);
  }
}

}  // namespace

void combine(StreamRef stream, View out, std::span<const std::byte* const> parts, Reduction reduction) {
  require(!parts.empty() && parts.size() <= most_parts, "combine: between 1 and most_parts parts");
  if (out.elements() == 0) return;
  if (stream.device().is_cuda()) return combine_by_kernel(stream, out, parts, reduction);
  stream.enqueue_host([out, list = std::vector(parts.begin(), parts.end()), reduction] {
    switch (out.dtype) {
      case DType::f32: return combine_typed<float>(out.data, list, out.elements(), reduction);
      case DType::f64: return combine_typed<double>(out.data, list, out.elements(), reduction);
      case DType::bf16: return combine_typed<BFloat16>(out.data, list, out.elements(), reduction);
      case DType::i32: return combine_typed<std::int32_t>(out.data, list, out.elements(), reduction);
      case DType::u8:
      case DType::f16:
      case DType::e4m3: break;
    }
    throw InternalError("combine: numbers only");
  });
}

}  // namespace plait::comm::p2p
