#include "ops/cpu/types.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

template <typename T>
void rotate(const Rope& args) {
  using A = Arithmetic<T>;
  const AttentionShape& s = args.shape;
  const std::int64_t half = s.head_dim / 2, row_elements = args.qkv.shape[1];
  const std::int32_t* starts = args.starts ? args.starts.as<std::int32_t>() : nullptr;
  for (std::int64_t row = 0; row < s.batch * s.sequence; ++row) {
    const std::int64_t position = row % s.sequence - (starts ? starts[row] : 0);
    const A* cosine = args.table.as<A>() + position * s.head_dim;
    const A* sine = cosine + half;
    for (std::int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
      T* lower = args.qkv.as<T>() + row * row_elements + head * s.head_dim;
      T* upper = lower + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const A a = load(lower[i]), b = load(upper[i]), c = cosine[i], sn = args.inverse ? -sine[i] : sine[i];
        lower[i] = store<T>(a * c - b * sn);
        upper[i] = store<T>(b * c + a * sn);
      }
    }
  }
}

}  // namespace

void rope(StreamRef stream, const Rope& args) {
  enqueue(stream, args.qkv.dtype, [args]<typename T>(std::type_identity<T>) { rotate<T>(args); });
}

}  // namespace plait::ops::cpu
