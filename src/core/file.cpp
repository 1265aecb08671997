#include "core/file.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <system_error>

#include "core/error.h"

namespace plait {
namespace {

constexpr mode_t file_mode = 0600;
constexpr mode_t directory_mode = 0700;

struct stat status_of(const FileDescriptor& descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) throw_file_error("inspect", path, errno);
  return status;
}

[[noreturn]] void refuse_length(const std::filesystem::path& path, const std::string& bytes, std::uint64_t max_bytes) {
  throw ConfigError(path.string() + ": " + bytes + " bytes, more than the " + std::to_string(max_bytes) +
                    " such a file can have");
}

void write_all(const FileDescriptor& descriptor, const std::filesystem::path& path, std::string_view data) {
  while (!data.empty()) {
    const ssize_t count = ::write(descriptor.get(), data.data(), data.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error("write", path, errno);
    data.remove_prefix(static_cast<std::size_t>(count));
  }
}

// A temporary name with no remains of an earlier attempt.
std::filesystem::path temporary_of(const std::filesystem::path& path) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) throw_file_error("write", path, errno);
  return temporary;
}

}  // namespace

void throw_file_error(const char* action, const std::filesystem::path& path, int error) {
  const std::string what =
      std::string("cannot ") + action + " " + path.string() + ": " + std::error_code(error, std::generic_category()).message();
  // A full disk is not the fault of the input.
  if (error == ENOSPC || error == EDQUOT) throw Error(what + "; free some space, or write elsewhere");
  if (error == EFBIG) throw Error(what + "; raise the limit on the size of files (ulimit -f), or write elsewhere");
  std::string hint;
  if (error == EEXIST) hint = "; remove it, if nothing is writing it";
  if (error == EMFILE) hint = "; raise the limit on open files (ulimit -n)";
  if (error == EACCES || error == EPERM) hint = "; check the owner and the permissions";
  throw ConfigError(what + hint);
}

std::filesystem::file_status status_at(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) throw_file_error("inspect", path, error.value());
  return status;
}

void refuse_dangling_link(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_symlink(path, ignored) || std::filesystem::exists(path, ignored)) return;
  throw ConfigError(path.string() + ": is a link that leads nowhere: " + std::filesystem::read_symlink(path, ignored).string() +
                    " is not there");
}

File File::open(const std::filesystem::path& path, int flags, const char* purpose) {
  // O_NONBLOCK: a FIFO in place of a file must not make a run wait forever.
  FileDescriptor descriptor(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, file_mode));
  if (!descriptor) throw_file_error(purpose, path, errno);
  File file(std::move(descriptor), path);
  if (!S_ISREG(status_of(file.descriptor_, path).st_mode)) {
    throw ConfigError("cannot " + std::string(purpose) + " " + path.string() + ": not a regular file");
  }
  return file;
}

File File::create(const std::filesystem::path& path) { return open(path, O_RDWR | O_CREAT | O_EXCL, "create"); }
File File::open_write(const std::filesystem::path& path) { return open(path, O_RDWR | O_NOFOLLOW, "open for writing"); }
File File::create_append(const std::filesystem::path& path) {
  return open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL, "create");
}
File File::open_append(const std::filesystem::path& path) {
  return open(path, O_RDWR | O_APPEND | O_CREAT, "open for writing");
}
File File::open_read(const std::filesystem::path& path) { return open(path, O_RDONLY, "open"); }

std::uint64_t File::size() const { return static_cast<std::uint64_t>(status_of(descriptor_, path_).st_size); }

std::int64_t File::changed_at() const { return status_of(descriptor_, path_).st_mtime; }

FileIdentity File::identity() const {
  const struct stat status = status_of(descriptor_, path_);
  return {.device = status.st_dev, .inode = status.st_ino};
}

void File::read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::pread(descriptor_.get(), to, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error("read", path_, errno);
    if (count == 0) {
      const std::uint64_t end = std::min(size(), offset);  // the file may grow again meanwhile
      throw ConfigError("cannot read " + path_.string() + ": it ends at byte " + std::to_string(end) + ", " +
                        std::to_string(offset + bytes - end) + " bytes early");
    }
    to += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
}

void File::write_at(std::uint64_t offset, const void* data, std::size_t bytes) const {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::pwrite(descriptor_.get(), from, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error("write", path_, errno);
    from += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
}

void File::append(std::string_view data) const { write_all(descriptor_, path_, data); }

void File::allocate(std::uint64_t bytes) const {
  if (bytes == 0) return;
  int result = 0;
  do {
    result = ::fallocate(descriptor_.get(), 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) throw_file_error("reserve space for", path_, errno);
  truncate(bytes);
}

void File::truncate(std::uint64_t bytes) const {
  if (::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) != 0) throw_file_error("set the size of", path_, errno);
}

void File::sync() const {
  if (::fsync(descriptor_.get()) != 0) throw_file_error("write to the disk", path_, errno);
}

void File::close() {
  const int descriptor = descriptor_.release();
  if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR) throw_file_error("close", path_, errno);
}

void create_private_directory(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), directory_mode) != 0) throw_file_error("create directory", path, errno);
}

void create_private_directories(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) return;
  create_private_directories(path.parent_path());
  if (::mkdir(path.c_str(), directory_mode) != 0 && errno != EEXIST) throw_file_error("create directory", path, errno);
}

void sync_directory(const std::filesystem::path& path) {
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) throw_file_error("open directory", path, errno);
  const int error = ::fsync(directory.get()) == 0 ? 0 : errno;
  // Some file systems cannot sync a directory and say EINVAL; there is nothing more to do on those.
  if (error != 0 && error != EINVAL) throw_file_error("write to the disk", path, error);
}

void remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0) throw_file_error("remove", path, errno);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_file_error(("rename " + from.string() + " to").c_str(), to, errno);
}

std::optional<FileIdentity> identity_at(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino};
}

std::vector<std::filesystem::path> list_directory(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    found.push_back(entry->path());
  }
  if (error) throw_file_error("list", path, error.value());
  return found;
}

std::string read_text(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const File file = File::open_read(path);
  const std::uint64_t bytes = file.size();
  if (bytes > max_bytes) refuse_length(path, std::to_string(bytes), max_bytes);
  std::string text(bytes, '\0');
  file.read_at(0, text.data(), bytes);
  return text;
}

std::string read_input(const std::filesystem::path& path, std::uint64_t max_bytes) {
  // Opened like File::open(); a read that would wait then fails instead, but only if a writer exists.
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!descriptor) throw_file_error("open", path, errno);
  const mode_t mode = status_of(descriptor, path).st_mode;
  if (!S_ISFIFO(mode) && !S_ISCHR(mode)) return read_text(path, max_bytes);
  constexpr std::size_t piece = 65536;
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + piece);
    const ssize_t count = ::read(descriptor.get(), text.data() + before, piece);
    const int error = count < 0 ? errno : 0;
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (text.size() > max_bytes) refuse_length(path, "at least " + std::to_string(text.size()), max_bytes);
    if (count == 0) break;
    if (error == EAGAIN) {
      struct pollfd readable{.fd = descriptor.get(), .events = POLLIN, .revents = 0};
      if (::poll(&readable, 1, -1) < 0 && errno != EINTR) throw_file_error("wait for", path, errno);
    } else if (error != 0 && error != EINTR) {
      throw_file_error("read", path, error);
    }
  }
  if (text.empty() && S_ISFIFO(mode)) {
    throw ConfigError("cannot read " + path.string() +
                      ": a pipe that nothing writes to, or that was read to its end before; start what writes to it first, or "
                      "give a file");
  }
  return text;
}

void write_text_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path temporary = temporary_of(path);
  File file = File::create(temporary);
  try {
    file.write_at(0, text.data(), text.size());
    file.sync();
    file.close();
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

std::filesystem::path output_file(const std::filesystem::path& path) {
  constexpr int most_links = 40;  // Linux's own limit
  std::filesystem::path end = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(end, error); ++links) {
    if (links == most_links) throw_file_error("follow the links of", path, ELOOP);
    const std::filesystem::path next = std::filesystem::read_symlink(end, error);
    if (error) throw_file_error("follow the links of", path, error.value());
    end = next.is_absolute() ? next : end.parent_path() / next;
  }
  if (const auto status = std::filesystem::status(end, error); exists(status) && !is_regular_file(status))
    throw ConfigError("cannot write " + path.string() + ": not a regular file");
  return end;
}

void require_writable(const std::filesystem::path& path) {
  std::error_code error;
  if (const auto status = std::filesystem::status(path, error); exists(status) && !is_regular_file(status)) return;
  const std::filesystem::path temporary = temporary_of(output_file(path));
  File::create(temporary).close();
  remove_file(temporary);
}

void write_output(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!exists(status) || is_regular_file(status)) return write_text_file(output_file(path), text);
  const FileDescriptor descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!descriptor) throw_file_error("write", path, errno);
  write_all(descriptor, path, text);
}

namespace {

namespace fs = std::filesystem;

constexpr const char* pattern = "plait-temporary-XXXXXX";
constexpr std::time_t without_lock_s = 60;  // far longer than its maker needs to lock a new one

FileDescriptor open_directory(const fs::path& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_old_and_ours(const FileDescriptor& directory) {
  struct stat status{};
  return ::fstat(directory.get(), &status) == 0 && status.st_uid == ::geteuid() &&
         status.st_mtime < std::time(nullptr) - without_lock_s;
}

void remove_leftovers(const fs::path& folder) {
  const std::string_view name(pattern);
  const std::string_view prefix = name.substr(0, name.find('X'));
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string found = entry->path().filename().string();
    if (found.size() != name.size() || !found.starts_with(prefix)) continue;
    const FileDescriptor directory = open_directory(entry->path());
    if (!directory) continue;
    std::error_code ignored;
    // A new directory is left alone even for a moment, since its maker is about to lock it.
    if (is_old_and_ours(directory) && ::flock(directory.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

PrivateDirectory::PrivateDirectory() {
  std::error_code failed;
  const fs::path folder = fs::temp_directory_path(failed);
  if (failed) {
    const char* given = std::getenv("TMPDIR");
    throw CommError(std::string("TMPDIR=") + (given ? given : "") +
                    ": is no directory for temporary files: " + failed.message());
  }
  remove_leftovers(folder);
  std::string name = (folder / pattern).string();
  if (!::mkdtemp(name.data())) throw CommError("cannot create the temporary directory " + name + ": " + errno_text());
  path_ = name;
  lock_ = open_directory(path_);
  if (lock_) ::flock(lock_.get(), LOCK_EX | LOCK_NB);  // if locks do not work, nobody removes it either
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace plait
