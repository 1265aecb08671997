// What the program tells its user beside its results. What it quotes may be anyone's, and does not steer the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plait {

// What a terminal may take as an order: the control characters of ASCII.
constexpr bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// On one line and fit for a terminal, whatever a file holds: control characters and bytes that are no UTF-8 become '?', and at
// most `most` bytes are kept.
std::string printable(std::string_view text, std::size_t most = 1024);

// "plait: TEXT" on stderr, in one write: ranks that are processes often fail together. Control characters in it, other than
// line ends and tabs, become '?'.
void message_to_stderr(const std::string& text);

}  // namespace plait
