#include "core/philox.h"

#include <cmath>
#include <numbers>

namespace plait {
namespace {

PhiloxBlock block(std::array<std::uint32_t, 2> key, std::uint64_t index, std::uint64_t subindex) {
  return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                     static_cast<std::uint32_t>(subindex), static_cast<std::uint32_t>(subindex >> 32)},
                    key);
}

}  // namespace

Random::Random(std::uint64_t seed, std::string_view name) {
  // FNV-1a over the name, mixed with the seed by one Philox call so that neighbouring seeds share nothing.
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  const PhiloxBlock mixed = block({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, hash, 0x706c616974u);
  key_ = {mixed[0], mixed[1]};
}

std::uint64_t Random::bits(std::uint64_t index, std::uint64_t subindex) const {
  const PhiloxBlock r = block(key_, index, subindex);
  return (std::uint64_t{r[1]} << 32) | r[0];
}

std::uint64_t Random::below(std::uint64_t bound, std::uint64_t index, std::uint64_t subindex) const {
  // Multiply-shift (Lemire 2019) without the rejection step: the bias is below bound / 2^64.
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits(index, subindex)) * bound) >> 64);
}

float Random::uniform(std::uint64_t index) const {
  return static_cast<float>(block(key_, index, 0)[0] >> 8) * 0x1.0p-24f;
}

float Random::normal(std::uint64_t index) const {
  const PhiloxBlock r = block(key_, index, 0);
  const double u = (static_cast<double>(r[0]) + 1.0) * 0x1.0p-32;  // in (0, 1]
  const double v = static_cast<double>(r[1]) * 0x1.0p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

}  // namespace plait
