// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// A value depends only on (key, counter), never on who draws it or in which order. Weights use the key (seed, hash of the
// parameter's name) and the global element index; the order of samples uses the key (seed, name of the source) and the epoch
// (data/sample_order.h). So every layout starts from the same weights and sees the same tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace plait {

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Ten rounds; the known-answer vectors of Random123 hold (tests/core/philox_test.cpp).
constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// One named stream of random numbers. Copyable; its only state is its key.
class Random {
 public:
  Random(std::uint64_t seed, std::string_view name);
  std::uint64_t bits(std::uint64_t index, std::uint64_t subindex = 0) const;                        // 64 uniform bits
  std::uint64_t below(std::uint64_t bound, std::uint64_t index, std::uint64_t subindex = 0) const;  // uniform in [0, bound)
  float uniform(std::uint64_t index) const;                                                         // in [0, 1)
  float normal(std::uint64_t index) const;  // mean 0, variance 1 (Box-Muller; four values from each Philox block)
  // values[i] = normal(first + i), without drawing each block four times.
  void fill_normal(std::uint64_t first, std::span<float> values) const;

 private:
  std::array<std::uint32_t, 2> key_;
};

}  // namespace plait
