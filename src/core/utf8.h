// UTF-8 validation.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace plait {

// Offset of the first byte that does not belong to well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates).
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

}  // namespace plait
