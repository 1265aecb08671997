// XXH3-64 (https://github.com/Cyan4973/xxHash): finds torn and flipped bytes at the speed of memory; not cryptographic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/file.h"

namespace plait::checkpoint {

std::uint64_t xxh3(std::string_view bytes);

// Of bytes [offset, offset + bytes) of a file. Read rather than mapped: an I/O error is then an error, not a SIGBUS.
std::uint64_t xxh3(const File& file, std::uint64_t offset, std::uint64_t bytes);

std::string to_hex(std::uint64_t hash);  // 16 lower-case digits

}  // namespace plait::checkpoint
