// XXH3-64 (https://github.com/Cyan4973/xxHash): finds torn and flipped bytes at the speed of memory; not cryptographic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace plait::checkpoint {

std::uint64_t xxh3(std::string_view bytes);

// The checksum of bytes [offset, offset + bytes) of a file. They are read, not mapped: an I/O error is then an error, not a
// SIGBUS.
std::uint64_t xxh3(const File& file, std::uint64_t offset, std::uint64_t bytes);

// Bytes [offset, offset + bytes) of a file, which must outlive this.
struct FileRange {
  const File* file = nullptr;
  std::uint64_t offset = 0, bytes = 0;
};
// The checksum of each range, in their order; runs on as many threads as there are processors, a range on one. If ranges cannot
// be read, the error of the first of them is thrown.
std::vector<std::uint64_t> xxh3(const std::vector<FileRange>& ranges);

std::string to_hex(std::uint64_t hash);  // 16 lower-case digits

}  // namespace plait::checkpoint
