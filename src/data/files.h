// Files as data sources: globs and read-only mappings.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait::data {

// One file matched by a glob. `by_wildcard`: some other file could have matched too.
struct MatchedFile {
  std::filesystem::path path;
  bool by_wildcard = false;
};

// The regular files that `globs` match: in the order of the globs, sorted by path (bytewise) within each, every file once.
// `*` and `?` match within a folder, `**` any number of folders. A wildcard matches neither names that begin with a dot nor
// the folders behind symbolic links. A glob that matches nothing is a ConfigError on `key` ("data.train").
std::vector<MatchedFile> match_files(const std::vector<std::string>& globs, const std::string& key);

// A whole file, mapped read-only. ConfigError naming the file where it cannot be opened.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(memory_), bytes_}; }
  std::string_view text() const { return {static_cast<const char*>(memory_), bytes_}; }

 private:
  void* memory_ = nullptr;  // nullptr for an empty file
  std::size_t bytes_ = 0;
};

}  // namespace plait::data
