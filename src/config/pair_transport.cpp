#include "config/pair_transport.h"

#include <algorithm>
#include <utility>

#include "core/parse_number.h"

namespace plait {
namespace {

constexpr int most_devices = 1 << 20;

std::optional<int> number(std::string_view text) {
  const std::optional<int> value = whole_number<int>(text);
  return value && *value >= 0 && *value < most_devices ? value : std::nullopt;
}

}  // namespace

std::optional<PairTransport> pair_transport(std::string_view text) {
  const std::size_t dash = text.find('-'), equals = text.find('=');
  if (dash == std::string_view::npos || equals == std::string_view::npos || dash > equals) return std::nullopt;
  const auto a = number(text.substr(0, dash)), b = number(text.substr(dash + 1, equals - dash - 1));
  const auto transport = named<Transport>(text.substr(equals + 1));
  if (!a || !b || *a == *b || !transport) return std::nullopt;
  return PairTransport{std::min(*a, *b), std::max(*a, *b), *transport};
}

}  // namespace plait
