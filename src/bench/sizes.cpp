#include "bench/sizes.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"

namespace plait::bench {
namespace {

constexpr std::array<const char*, 4> units{"B", "KB", "MB", "GB"};
constexpr std::size_t largest = std::size_t{1} << 40;

}  // namespace

std::size_t parse_bytes(const std::string& text, const std::string& option) {
  const auto refuse = [&] {
    throw ConfigError({{option, text, "must be a number of bytes from 1 to 1024 GB, such as 512, 4K, 16M or 1G", "", 0}});
  };
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number == 0 || number > largest) refuse();
  std::string unit(end, text.data() + text.size());
  std::erase(unit, ' ');
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::toupper(c); });
  if (unit.ends_with("IB")) unit.erase(unit.size() - 2);
  if (unit.size() == 2 && unit.back() == 'B') unit.pop_back();
  std::size_t factor = 1;
  if (unit == "K")
    factor = kilo;
  else if (unit == "M")
    factor = kilo * kilo;
  else if (unit == "G")
    factor = kilo * kilo * kilo;
  else if (!unit.empty() && unit != "B")
    refuse();
  if (number > largest / factor) refuse();
  return number * factor;
}

std::string format_size(std::size_t bytes) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && bytes >= kilo && bytes % kilo == 0) {
    bytes /= kilo;
    ++unit;
  }
  return std::to_string(bytes) + " " + units[unit];
}

std::vector<std::size_t> message_sizes(const SizeOptions& options, bool gpus) {
  std::vector<std::size_t> sizes;
  if (!options.sizes.empty()) {
    if (!options.min.empty() || !options.max.empty()) throw ConfigError("--sizes replaces --min and --max: give either");
    for (const std::string& text : options.sizes) sizes.push_back(parse_bytes(text, "--sizes"));
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
  }
  const std::size_t min = options.min.empty() ? kilo : parse_bytes(options.min, "--min");
  const std::size_t max =
      options.max.empty() ? (gpus ? kilo * kilo * kilo : 16 * kilo * kilo) : parse_bytes(options.max, "--max");
  if (min > max) {
    throw ConfigError({{"--min", format_size(min), "must not be above --max, " + format_size(max), "", 0}});
  }
  for (std::size_t bytes = min; bytes <= max; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

std::size_t bound_sizes(std::vector<std::size_t>& sizes, std::size_t most) {
  return std::erase_if(sizes, [&](std::size_t bytes) { return bytes > most; });
}

int messages_for(std::size_t bytes, std::size_t budget) {
  return static_cast<int>(std::clamp<std::size_t>(budget / bytes, 4, 64));
}

}  // namespace plait::bench
