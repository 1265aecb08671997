// A file descriptor with positioned reads and writes. Every failure names the file and the reason: an Error where there is no
// room to write (a full disk, a quota, `ulimit -f` where SIGXFSZ is ignored, as plait does), and otherwise a ConfigError.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file_descriptor.h"

namespace plait {

// Which file a descriptor is open on, whatever its path names by now.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0;
  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};

// Files and directories of a run are created private to the user: modes 0600 and 0700.
class File {
 public:
  static File create(const std::filesystem::path& path);         // reading and writing; fails if it exists
  static File open_write(const std::filesystem::path& path);     // reading and writing; must exist, and not be a link
  static File create_append(const std::filesystem::path& path);  // every write goes to the end; fails if it exists
  static File open_append(const std::filesystem::path& path);    // the same; created if missing
  static File open_read(const std::filesystem::path& path);      // must be a regular file

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const;
  std::int64_t changed_at() const;  // when its bytes last changed: seconds since 1970, which is what copies keep
  FileIdentity identity() const;
  // Reads all `bytes`. A file that ends early is an error too.
  void read_at(std::uint64_t offset, void* data, std::size_t bytes) const;
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes) const;
  void append(std::string_view data) const;  // for the append kinds: in one write, so that readers see whole lines
  // Reserves `bytes` on the disk where the file system can, so that a full disk shows up now; otherwise only sets the size.
  void allocate(std::uint64_t bytes) const;
  void truncate(std::uint64_t bytes) const;
  void sync() const;  // returns once the data is on the disk
  void close();       // some file systems report a failed write only here; the destructor ignores it

 private:
  File(FileDescriptor descriptor, std::filesystem::path path) : descriptor_(std::move(descriptor)), path_(std::move(path)) {}
  static File open(const std::filesystem::path& path, int flags, const char* purpose);
  FileDescriptor descriptor_;
  std::filesystem::path path_;
};

// As File's failures, of what the standard library or the system refused: "cannot use PATH: Permission denied; check ...".
[[noreturn]] void throw_file_error(const char* action, const std::filesystem::path& path, int error);
// As std::filesystem::status: there is nothing, or a file or directory of that kind. ConfigError where that cannot be seen.
std::filesystem::file_status status_at(const std::filesystem::path& path);

// ConfigError for a link to what is not there, as a cache leaves that lost its files.
void refuse_dangling_link(const std::filesystem::path& path);

void create_private_directory(const std::filesystem::path& path);    // its parent must exist, it must not
void create_private_directories(const std::filesystem::path& path);  // with its parents; does nothing if it exists
void sync_directory(const std::filesystem::path& path);              // makes creations and renames in it durable
void remove_file(const std::filesystem::path& path);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
// Of what a path leads to, whatever that is; nothing where it leads to nothing.
std::optional<FileIdentity> identity_at(const std::filesystem::path& path);
std::vector<std::filesystem::path> list_directory(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes);
// The same of a path that the user gives and that is read once: to its end where it is a pipe or a character device, as
// <(COMMAND) and /dev/stdin are. ConfigError for a pipe that nothing writes to, instead of waiting for somebody who does.
std::string read_input(const std::filesystem::path& path, std::uint64_t max_bytes);
// Writes `text` to `path` in one piece (temporary file, rename), mode 0600.
void write_text_file(const std::filesystem::path& path, const std::string& text);

// Of a path that the user gives for output: where it leads, all links followed. A file that is not there yet, or a regular one,
// which may be replaced; ConfigError for anything else, such as a device or a pipe.
std::filesystem::path output_file(const std::filesystem::path& path);
// Before work whose result goes there: what keeps write_output() from making a file there, as its error.
void require_writable(const std::filesystem::path& path);
// Writes `text` to such a path: as write_text_file to a file, and as it comes to a device or a pipe.
void write_output(const std::filesystem::path& path, const std::string& text);

}  // namespace plait
