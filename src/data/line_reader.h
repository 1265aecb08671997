// Reads a text line by line. Private to src/data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/files.h"

namespace plait::data {

class LineReader {
 public:
  explicit LineReader(const DataFile& file) : file_(file), reader_(file) {}  // the file outlives it

  // The next line without its end ("\n" or "\r\n"); nullopt after the last. Valid until the next call. ConfigError naming file
  // and line if one is longer than 256 MiB, or the text cannot be read.
  std::optional<std::string_view> next();
  std::int64_t number() const { return number_; }  // of that line, from 1 on
  std::uint64_t file_bytes_read() const { return reader_.file_bytes_read(); }

 private:
  const DataFile& file_;
  TextReader reader_;
  std::size_t held_ = 0;  // bytes of the last line that next() returned, with its end
  std::int64_t number_ = 0;
};

}  // namespace plait::data
