#include "data/sample_order.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "core/error.h"

namespace plait::data {
namespace {

constexpr std::uint64_t feistel_rounds = 24;

// The least r with r * r >= size.
std::uint64_t root_above(std::uint64_t size) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(size)));
  while (root * root < size) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= size) --root;
  return root;
}

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::string_view name, std::uint64_t size)
    : random_(seed, name), size_(size), a_(1), b_(1) {
  require(size >= 1 && size <= largest, "Permutation: the size is 1 to 2^63");
  a_ = root_above(size) + root_above(size) % 2;
  b_ = (size + a_ - 1) / a_;
}

std::uint64_t Permutation::at(std::uint64_t epoch, std::uint64_t index) const {
  require(index < size_, "Permutation::at: index outside the permutation");
  std::uint64_t element = once(epoch, index);
  while (element >= size_) element = once(epoch, element);
  return element;
}

std::uint64_t Permutation::once(std::uint64_t epoch, std::uint64_t element) const {
  // The half that a round adds to has the modulus a in even rounds and b in odd ones.
  std::uint64_t changed = element % a_, other = element / a_;
  std::uint64_t modulus = a_, next = b_;
  for (std::uint64_t round = 0; round < feistel_rounds; ++round) {
    const std::uint64_t sum = (changed + random_.below(modulus, other, epoch * feistel_rounds + round)) % modulus;
    changed = other;
    other = sum;
    std::swap(modulus, next);
  }
  // After an even number of rounds the halves are back in their places.
  return other * a_ + changed;
}

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

Blend::Blend(std::span<const double> weights) : before_{0} {
  require(!weights.empty() && std::ranges::all_of(weights, [](double w) { return std::isfinite(w) && w > 0; }),
          "Blend: weights are above 0");
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double weight : weights) {
    const auto share = static_cast<std::uint64_t>(std::llround(std::ldexp(weight / sum, 40)));
    before_.push_back(before_.back() + std::max<std::uint64_t>(share, 1));
  }
}

std::int64_t Blend::to_left(std::int64_t samples, std::size_t first, std::size_t middle, std::size_t end) const {
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t left = before_[middle] - before_[first], all = before_[end] - before_[first];
  return static_cast<std::int64_t>((static_cast<Wide>(samples) * left + all / 2) / all);
}

Blend::Place Blend::at(std::int64_t sample) const {
  require(sample >= 0, "Blend::at: samples count from 0");
  std::size_t first = 0, end = before_.size() - 1;
  while (end - first > 1) {
    const std::size_t middle = first + (end - first) / 2;
    const std::int64_t left = to_left(sample, first, middle, end);
    if (to_left(sample + 1, first, middle, end) > left) {
      sample = left;
      end = middle;
    } else {
      sample -= left;
      first = middle;
    }
  }
  return {first, sample};
}

std::vector<std::int64_t> Blend::taken(std::int64_t samples) const {
  std::vector<std::int64_t> counts(before_.size() - 1);
  const std::function<void(std::int64_t, std::size_t, std::size_t)> share = [&](std::int64_t count, std::size_t first,
                                                                                std::size_t end) {
    if (end - first == 1) {
      counts[first] = count;
      return;
    }
    const std::size_t middle = first + (end - first) / 2;
    const std::int64_t left = to_left(count, first, middle, end);
    share(left, first, middle);
    share(count - left, middle, end);
  };
  share(samples, 0, before_.size() - 1);
  return counts;
}

}  // namespace plait::data
