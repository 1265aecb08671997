// Files with positioned reads and writes. Every failure names the file and the reason: an Error if there is no room to write (a
// full disk, a quota, `ulimit -f` where SIGXFSZ is ignored, as plait does), and otherwise a ConfigError.
#pragma once

#include <unistd.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace plait {

// Owns a file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}  // -1 is none
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }  // the caller closes it
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

// A path by which this process can open the descriptor's file once more.
inline std::string path_of(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

// Identifies the file that a descriptor is open on, even if its path now names another.
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
  static File open_append(const std::filesystem::path& path);    // likewise; created if missing
  static File open_read(const std::filesystem::path& path);      // must be a regular file

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const;
  std::int64_t changed_at() const;  // modification time in seconds since 1970, which copies keep
  FileIdentity identity() const;
  // Reads all `bytes`. A file that ends early is an error too.
  void read_at(std::uint64_t offset, void* data, std::size_t bytes) const;
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes) const;
  void append(std::string_view data) const;  // for the append kinds: in one write, so that readers see whole lines
  // Reserves `bytes` on the disk if the file system can, so that a full disk shows up now; otherwise only sets the size.
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

// A file under a temporary name: the destructor removes it, unless it was renamed.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(std::filesystem::path path) : path_(std::move(path)) {}
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  ~UnfinishedFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

 private:
  const std::filesystem::path path_;
};

// Throws the error of a refused operation in the form of File's failures: "cannot use PATH: Permission denied; check ...".
[[noreturn]] void throw_file_error(const char* action, const std::filesystem::path& path, int error);
// Like std::filesystem::status: nothing, or a file or directory of some kind. ConfigError if that cannot be determined.
std::filesystem::file_status status_at(const std::filesystem::path& path);

// ConfigError for a link without a target, such as in a cache that lost its files.
void refuse_dangling_link(const std::filesystem::path& path);

void create_private_directory(const std::filesystem::path& path);    // its parent must exist, it must not
void create_private_directories(const std::filesystem::path& path);  // with its parents; does nothing if it exists
void sync_directory(const std::filesystem::path& path);              // makes creations and renames in it durable
void remove_file(const std::filesystem::path& path);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
// The identity of a path's target of any kind; nullopt if there is none.
std::optional<FileIdentity> identity_at(const std::filesystem::path& path);
std::vector<std::filesystem::path> list_directory(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes);
// read_file() for a path that the user gives and that is read once: a pipe or a character device, such as <(COMMAND) and
// /dev/stdin, is read to its end. ConfigError for a pipe without a writer, instead of waiting for one.
std::string read_input(const std::filesystem::path& path, std::uint64_t max_bytes);
// Writes `text` to `path` in one piece (temporary file, rename), mode 0600.
void write_text_file(const std::filesystem::path& path, const std::string& text);

// The target of a path that the user gives for output, with all links followed: a file that does not exist yet, or a regular
// one, which may be replaced; ConfigError for anything else, such as a device or a pipe.
std::filesystem::path output_file(const std::filesystem::path& path);
// Called before work whose result goes there: throws the error if write_output() could not make a file there.
void require_writable(const std::filesystem::path& path);
// Writes `text` to such a path: like write_text_file for a file, directly for a device or a pipe.
void write_output(const std::filesystem::path& path, const std::string& text);

// A directory for temporary files that no other user can read. It is removed with the object; the remains of a killed process
// are removed when the next object is made in the same folder.
class PrivateDirectory {
 public:
  PrivateDirectory();  // mode 0700, in the system's folder for temporary files; CommError if it cannot be made
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;  // on the directory: says that its maker is alive
};

}  // namespace plait
