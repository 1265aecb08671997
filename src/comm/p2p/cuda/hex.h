// Driver handles as text: opaque bytes of a known size.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "comm/p2p/text_fields.h"

namespace plait::comm::p2p {

template <typename Handle>
std::string to_hex(const Handle& handle) {
  constexpr char digits[] = "0123456789abcdef";
  unsigned char bytes[sizeof(Handle)];
  std::memcpy(bytes, &handle, sizeof bytes);
  std::string text;
  for (const unsigned char byte : bytes) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

template <typename Handle>
Handle handle_from(FieldReader& fields, const std::string& name) {
  const std::string text = fields.text(name);
  unsigned char bytes[sizeof(Handle)];
  if (text.size() != 2 * sizeof bytes) fields.refuse(name, "has the wrong size");
  const auto digit = [&](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
    fields.refuse(name, "is not a handle");
  };
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    bytes[i] = static_cast<unsigned char>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  }
  Handle handle;
  std::memcpy(&handle, bytes, sizeof bytes);
  return handle;
}

}  // namespace plait::comm::p2p
