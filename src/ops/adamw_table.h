// The layout of adamw_table()'s result: an array of AdamWPiece and, where moments are bf16, an array of as many ElementNumbers
// behind it, one per piece. Private to ops; shared by cpu/ and cuda/.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/adamw.h"

namespace plait::ops {

struct AdamWPiece {
  std::int64_t offset, gradient_offset, state_offset;  // as in AdamWRange
  std::int32_t count;                                  // 1 .. adamw_piece_elements
  std::int32_t decay;                                  // 0 or 1
};
static_assert(sizeof(AdamWPiece) == 32 && std::is_trivially_copyable_v<AdamWPiece>);
static_assert(sizeof(ElementNumbers) == 32 && std::is_trivially_copyable_v<ElementNumbers>);

constexpr std::int64_t bytes_of_piece(DType moments) {
  return static_cast<std::int64_t>(sizeof(AdamWPiece) + (moments == DType::bf16 ? sizeof(ElementNumbers) : 0));
}

// One thread block's share: 256 threads with 16 elements each. Pieces start at the range's start, so vector loads are
// aligned whenever the range's offsets are.
inline constexpr std::int64_t adamw_piece_elements = 4096;

}  // namespace plait::ops
