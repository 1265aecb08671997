#include "core/bus_id.h"

#include <algorithm>

namespace plait {
namespace {

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::optional<std::string> bus_id_from(std::string_view text) {
  std::string lower(text.substr(0, 32));
  for (char& c : lower) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  constexpr std::string_view tail = ":1b:00.0";
  if (text.size() > 8 + tail.size() || lower.size() < 4 + tail.size()) return std::nullopt;
  std::string domain = lower.substr(0, lower.size() - tail.size());
  const std::string rest = lower.substr(domain.size());
  const std::string digits = domain + rest.substr(1, 2) + rest.substr(4, 2) + rest.substr(7, 1);
  if (rest[0] != ':' || rest[3] != ':' || rest[6] != '.' || !is_hex(digits)) return std::nullopt;
  // Domains have 16 bits, except on some virtual bridges.
  domain.erase(0, std::min(domain.find_first_not_of('0'), domain.size() - 4));
  return domain + rest;
}

}  // namespace plait
