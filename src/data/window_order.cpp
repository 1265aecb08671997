#include "data/window_order.h"

#include <string>

#include "core/error.h"

namespace plait::data {
namespace {

std::uint64_t windows_in(std::int64_t tokens, std::int64_t sequence_length) {
  require(sequence_length >= 1 && tokens > sequence_length, "WindowOrder: there is no window in so few tokens");
  return static_cast<std::uint64_t>((tokens - 1) / sequence_length);
}

}  // namespace

WindowOrder::WindowOrder(std::uint64_t seed, std::string_view name, std::int64_t tokens, std::int64_t sequence_length,
                         bool shuffle)
    : permutation_(seed, std::string(name) + " order", windows_in(tokens, sequence_length)),
      offsets_(seed, std::string(name) + " offset"),
      sequence_length_(sequence_length),
      left_over_((tokens - 1) % sequence_length),
      shuffle_(shuffle) {}

std::int64_t WindowOrder::start(std::int64_t position) const {
  require(position >= 0, "WindowOrder::start: positions count from 0");
  const auto epoch = static_cast<std::uint64_t>(position / windows()), index = static_cast<std::uint64_t>(position % windows());
  if (!shuffle_) return static_cast<std::int64_t>(index) * sequence_length_;
  const std::uint64_t offset = offsets_.below(static_cast<std::uint64_t>(left_over_) + 1, epoch);
  return static_cast<std::int64_t>(permutation_.at(epoch, index)) * sequence_length_ + static_cast<std::int64_t>(offset);
}

}  // namespace plait::data
