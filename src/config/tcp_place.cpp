#include "config/tcp_place.h"

#include <string_view>

#include "core/parse_number.h"

namespace plait {

std::optional<TcpPlace> tcp_place(const std::string& text) {
  constexpr std::string_view prefix = "tcp://";
  if (text == "tcp") return TcpPlace{};
  const std::size_t colon = text.rfind(':');
  if (!text.starts_with(prefix) || colon < prefix.size()) return std::nullopt;
  TcpPlace place{.host = text.substr(prefix.size(), colon - prefix.size())};
  if (place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']') {
    place.host = place.host.substr(1, place.host.size() - 2);
  } else if (place.host.find_first_of("[]:/ ") != std::string::npos) {
    return std::nullopt;
  }
  place.port = whole_number<int>(std::string_view(text).substr(colon + 1)).value_or(0);
  if (place.port < 1 || place.port > 65535) return std::nullopt;
  return place;
}

}  // namespace plait
