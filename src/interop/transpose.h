// Transposes matrices in tiles that stay in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace plait::interop {

// [rows, columns] from [columns, rows]. Rows of `to` begin `stride` elements apart, at least `columns`.
inline void transpose(std::span<const float> from, std::int64_t rows, std::int64_t columns, float* to, std::int64_t stride) {
  constexpr std::int64_t tile = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += tile) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += tile) {
      for (std::int64_t r = r0; r < std::min(rows, r0 + tile); ++r) {
        for (std::int64_t c = c0; c < std::min(columns, c0 + tile); ++c)
          to[r * stride + c] = from[static_cast<std::size_t>(c * rows + r)];
      }
    }
  }
}

}  // namespace plait::interop
