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

std::array<float, 4> normals(const PhiloxBlock& r) {
  std::array<float, 4> values;
  for (std::size_t pair = 0; pair < 2; ++pair) {
    const float u = (static_cast<float>(r[2 * pair] >> 8) + 1.0f) * 0x1.0p-24f;  // in (0, 1]
    const float v = static_cast<float>(r[2 * pair + 1] >> 8) * 0x1.0p-24f;
    const float radius = std::sqrt(-2.0f * std::log(u));
    const float angle = 2.0f * std::numbers::pi_v<float> * v;
    values[2 * pair] = radius * std::cos(angle);
    values[2 * pair + 1] = radius * std::sin(angle);
  }
  return values;
}

}  // namespace

Random::Random(std::uint64_t seed, std::string_view name) {
  // FNV-1a over the name, mixed with the seed by one Philox call so that neighbouring seeds share nothing.
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  const PhiloxBlock mixed =
      block({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, hash, 0x706c616974u);
  key_ = {mixed[0], mixed[1]};
}

std::uint64_t Random::bits(std::uint64_t index, std::uint64_t subindex) const {
  const PhiloxBlock r = block(key_, index, subindex);
  return (std::uint64_t{r[1]} << 32) | r[0];
}

std::uint64_t Random::below(std::uint64_t bound, std::uint64_t index, std::uint64_t subindex) const {
  // Multiply-shift (Lemire 2019) without the rejection step: the bias is below bound / 2^64.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits(index, subindex)) * bound) >> 64);
}

float Random::uniform(std::uint64_t index) const { return static_cast<float>(block(key_, index, 0)[0] >> 8) * 0x1.0p-24f; }

float Random::normal(std::uint64_t index) const { return normals(block(key_, index / 4, 0))[index % 4]; }

void Random::fill_normal(std::uint64_t first, std::span<float> values) const {
  std::size_t done = 0;
  while (done < values.size()) {
    const std::uint64_t index = first + done;
    const std::array<float, 4> four = normals(block(key_, index / 4, 0));
    for (std::uint64_t i = index % 4; i < 4 && done < values.size(); ++i) values[done++] = four[i];
  }
}

}  // namespace plait
