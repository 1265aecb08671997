#include "comm/p2p/mover.h"

#include <algorithm>
#include <type_traits>

#include "comm/reduction.h"
#include "core/error.h"

namespace plait::comm::p2p {

void copy_all(StreamRef stream, std::span<const Copy> copies) {
  require(copies.size() <= most_copies, "copy_all: at most most_copies");
  if (stream.device().is_cuda()) return copy_all_by_kernel(stream, copies);
  for (const Copy& copy : copies) {
    if (copy.bytes > 0) stream.copy(copy.to, copy.from, copy.bytes);
  }
}

void CounterBatch::write(std::uint32_t* counter, std::uint32_t value) {
  operations_.push_back({CounterOperation::Kind::write, counter, value});
}

void CounterBatch::wait(const std::uint32_t* counter, std::uint32_t value, const std::shared_ptr<std::atomic<bool>>& released) {
  operations_.push_back({CounterOperation::Kind::wait, const_cast<std::uint32_t*>(counter), value});
  released_.push_back(released);
}

CounterValue CounterBatch::last() const {
  return operations_.empty() ? CounterValue{} : CounterValue{operations_.back().counter, operations_.back().value};
}

void CounterBatch::append(const CounterBatch& other) {
  operations_.insert(operations_.end(), other.operations_.begin(), other.operations_.end());
  released_.insert(released_.end(), other.released_.begin(), other.released_.end());
}

void CounterBatch::enqueue(StreamRef stream) {
  stream.count(operations_);
  if (!stream.device().is_cuda() && !released_.empty()) {
    stream.enqueue_host([flags = std::move(released_)] {
      if (std::ranges::any_of(flags, [](const auto& released) { return released->load(); }))
        throw CommError("Mailbox: aborted");
    });
  }
  operations_.clear();
  released_.clear();
}

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
