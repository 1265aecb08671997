#include "bench/message_load.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"

namespace plait::bench {
namespace {

// The load must still fit if the run is slower than the trial.
constexpr double headroom = 0.9;

int load(int carried) { return std::max(2, static_cast<int>(headroom * carried)); }

}  // namespace

std::vector<int> message_loads(const std::vector<int>& carried, std::optional<std::size_t> reference) {
  require(!carried.empty() && reference.value_or(0) < carried.size(), "message_loads: there is no such method");
  const int yardstick = reference ? carried[*reference] : *std::max_element(carried.begin(), carried.end());
  const auto compares = [&](int own) { return 2 * own >= yardstick; };
  int common = yardstick;
  for (const int own : carried) {
    if (compares(own)) common = std::min(common, own);
  }
  std::vector<int> loads;
  for (const int own : carried) loads.push_back(load(compares(own) ? common : std::min(own, common)));
  return loads;
}

int product_of(int message, int messages, int products) {
  return static_cast<int>(static_cast<std::int64_t>(message) * products / messages);
}

}  // namespace plait::bench
