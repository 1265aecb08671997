// Reads files of Zstandard frames (RFC 8878) from beginning to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "data/files.h"

struct ZSTD_DCtx_s;

namespace plait::data {

// Holds a part of the file and the window that a frame may refer back to, at most 128 MiB for content of any length.
class ZstdReader {
 public:
  explicit ZstdReader(const DataFile& file);  // the file outlives it
  ~ZstdReader();
  ZstdReader(const ZstdReader&) = delete;
  ZstdReader& operator=(const ZstdReader&) = delete;

  // The next bytes of the content, as many as `to` holds; fewer only at its end. ConfigError naming file and byte offset if a
  // frame is damaged, cut off, or needs more memory.
  std::size_t read(std::span<char> to);
  std::uint64_t file_bytes_read() const { return read_ - (input_.size() - at_); }

 private:
  [[noreturn]] void refuse(const std::string& why) const;

  const DataFile& file_;
  const std::unique_ptr<ZSTD_DCtx_s, std::size_t (*)(ZSTD_DCtx_s*)> context_;
  std::string input_;
  std::size_t at_ = 0;         // of the unread bytes in input_
  std::uint64_t read_ = 0;     // of the file
  bool within_frame_ = false;  // the frame goes on
};

// Decides by the name NAME.zst.
inline bool is_zstd(const std::filesystem::path& path) { return path.extension() == ".zst"; }

}  // namespace plait::data
