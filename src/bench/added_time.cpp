#include "bench/added_time.h"

#include <algorithm>

#include "core/error.h"

namespace plait::bench {

AddedTime added_time(const MixTimes& few, const MixTimes& many) {
  constexpr double most = 1.25;
  require(many.blocks > few.blocks, "added_time: needs a model with more blocks than the other");
  const double block = (many.micro_batch() - few.micro_batch()) / static_cast<double>(many.blocks - few.blocks);
  const double head = few.micro_batch() - static_cast<double>(few.blocks) * block;
  return {std::clamp(block / many.block, 1 / most, most), std::clamp(head / many.head, 1 / most, most)};
}

}  // namespace plait::bench
