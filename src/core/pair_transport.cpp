#include "core/pair_transport.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace plait {
namespace {

constexpr int most_devices = 1 << 20;

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= most_devices) return std::nullopt;
  return value;
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
