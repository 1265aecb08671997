// Data files: globs, and reading at positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

struct ZSTD_DCtx_s;

namespace plait::data {

// One file matched by a glob. `by_wildcard`: some other file could have matched too.
struct MatchedFile {
  std::filesystem::path path;
  bool by_wildcard = false;
};

// The regular files that `globs` match: in the order of the globs, sorted by path (bytewise) within each, every file once. `*`
// and `?` match within a folder, `**` any number of folders, but none behind a symbolic link. A wildcard does not match names
// that begin with a dot. ConfigError on `key` ("data.train") for a glob that matches nothing, and for each unreadable folder or
// link that a glob leads to.
std::vector<MatchedFile> match_files(const std::vector<std::string>& globs, const std::string& key);

// A regular data file, with its length at opening. It is read, never mapped: if a file gets shorter during a run, or the disk
// fails, that is then an error of the rank that reads it; with a mapping it would be a SIGBUS of the process.
class DataFile {
 public:
  explicit DataFile(const std::filesystem::path& path);  // ConfigError naming the file if it cannot be opened
  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return bytes_; }
  // Reads bytes [offset, offset + to.size()). Thread-safe. ConfigError naming the file if they do not exist any more.
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  std::string text() const;  // all of it
  // Gives the descriptor back, because a process has few: every later read opens the file anew. ConfigError if it is another
  // file by then.
  void let_go() { file_.reset(); }

 private:
  std::filesystem::path path_;
  std::optional<File> file_;
  FileIdentity identity_;
  std::uint64_t bytes_ = 0;
};

// True if a file begins with these bytes. False for one that cannot be read, or is not a regular file.
bool begins_with(const std::filesystem::path& path, std::string_view bytes);

// ConfigError with the remedy for a file whose first bytes show that it is compressed, and whose name does not say so.
void refuse_compressed(const DataFile& file);

class ZstdReader;

// Reads the text of a file from beginning to end, a part of it in memory at a time: the file's bytes or, for NAME.zst, the
// decompressed ones (data/files.h). ConfigError as for refuse_compressed().
class TextReader {
 public:
  explicit TextReader(const DataFile& file);  // the file outlives it
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;
  // The next `bytes` or more, or all that are left. Valid until the next call.
  std::string_view peek(std::size_t bytes);
  void skip(std::size_t bytes);  // at most what peek() has returned
  std::uint64_t file_bytes_read() const;

 private:
  std::size_t read(std::span<char> to);  // the next bytes; fewer than `to` holds at the end only

  const DataFile& file_;
  const std::unique_ptr<ZstdReader> zstd_;  // null: the file holds the text itself
  std::string buffer_;                      // text read so far
  std::size_t begin_ = 0;                   // of the unread text in buffer_
  std::uint64_t read_ = 0;                  // of a file that holds the text
  bool ended_ = false;
};

// All of its text.
std::string whole_text(const DataFile& file);

// find_invalid_utf8 of core/utf8.h for the text of a file of any length.
std::optional<std::uint64_t> find_invalid_utf8(const DataFile& file);

// Reads a text line by line. Private to src/data.
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

// Reads files of Zstandard frames (RFC 8878) from beginning to end. Holds a part of the file and the window that a frame may
// refer back to, at most 128 MiB for content of any length.
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
