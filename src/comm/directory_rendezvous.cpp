// A rendezvous between processes: a private directory that holds one file per key.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <string>

#include "comm/rendezvous.h"
#include "core/device.h"
#include "core/error.h"
#include "core/file.h"

namespace plait::comm {
namespace {

// The key as one path component: everything but letters, digits, '-' and '_' becomes %XX.
std::string file_name(const std::string& key) {
  constexpr char hex[] = "0123456789abcdef";
  std::string name = "key-";
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || c == '-' || c == '_') {
      name += c;
    } else {
      name += {'%', hex[byte >> 4], hex[byte & 15]};
    }
  }
  return name;
}

class DirectoryRendezvous final : public PolledRendezvous {
 public:
  explicit DirectoryRendezvous(std::string directory) : path_(std::move(directory)) {
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
      throw CommError("rendezvous: cannot create directory " + path_ + ": " + errno_text());
    }
    directory_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!directory_ && (errno == ENOTDIR || errno == ELOOP)) throw CommError("rendezvous: " + path_ + " is not a directory");
    struct stat status{};
    if (!directory_ || ::fstat(directory_.get(), &status) != 0) {
      throw CommError("rendezvous: cannot use directory " + path_ + ": " + errno_text());
    }
    if (status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
      throw CommError("rendezvous: directory " + path_ + " must belong to this user and be closed to others (chmod 700)");
    }
  }

  bool try_set(const std::string& key, const std::string& value) override { return publish(checked_name(key), value); }

  std::optional<std::string> find(const std::string& key) override { return read(checked_name(key)); }

  void abort(const std::string& reason) noexcept override {
    try {
      publish(abort_name, reason);
    } catch (...) {
      // The directory may be gone, and with it the ranks that could read the reason.
      return;
    }
  }

 protected:
  std::optional<std::string> abort_reason() override { return read(abort_name); }
  std::string place() const override { return " in " + path_; }

 private:
  static constexpr const char* abort_name = "abort";

  static std::string checked_name(const std::string& key) {
    const std::string name = file_name(key);
    if (name.size() > 255) throw CommError("rendezvous: key '" + key + "' is too long for a file name");
    return name;
  }

  [[noreturn]] void fail(const std::string& what, const std::string& name) const {
    throw CommError("rendezvous: cannot " + what + " " + path_ + "/" + name + ": " + errno_text());
  }

  // Makes the file appear with all of `text` in it, or returns false if it exists. linkat() makes this atomic and exclusive, on
  // NFS as well, where a rename would replace a key that another rank set.
  bool publish(const std::string& name, const std::string& text) {
    const std::string temporary = ".tmp-" + host_and_process() + "-" + std::to_string(next_temporary_.fetch_add(1));
    write_file(temporary, text);
    bool linked = ::linkat(directory_.get(), temporary.c_str(), directory_.get(), name.c_str(), 0) == 0;
    const int link_error = errno;
    struct stat status{};
    // NFS may have made the link and lost the answer; then it now finds its own link there (open(2), O_EXCL).
    if (!linked && ::fstatat(directory_.get(), temporary.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      linked = status.st_nlink == 2;
    ::unlinkat(directory_.get(), temporary.c_str(), 0);
    if (linked) return true;
    if (link_error == EEXIST) return false;
    errno = link_error;
    fail("create", name);
  }

  // Creates the file, which must not exist, readable by this user alone.
  void write_file(const std::string& name, const std::string& text) const {
    const int descriptor = ::openat(directory_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor < 0) fail("create", name);
    std::size_t done = 0;
    bool failed = false;
    while (done < text.size() && !failed) {
      const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
      if (count > 0) done += static_cast<std::size_t>(count);
      failed = count < 0 && errno != EINTR;
    }
    const int write_error = errno;
    const bool closed = ::close(descriptor) == 0;  // NFS reports a full disk only here
    if (failed) errno = write_error;
    if (failed || !closed) fail("write", name);
  }

  FileDescriptor open_file(const std::string& name) const {
    return FileDescriptor(::openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  }

  // NFS answers from its cache, for up to a minute, that a file is not there; opening the directory makes it look again.
  void look_again() const {
    const FileDescriptor directory(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

  std::optional<std::string> read(const std::string& name) const {
    FileDescriptor file = open_file(name);
    if (!file && errno == ENOENT) {
      look_again();
      file = open_file(name);
    }
    if (!file && (errno == ENOENT || errno == ESTALE)) return std::nullopt;  // NFS returns ESTALE for a file that is gone
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) fail("open", name);
    if (status.st_size < 0 || static_cast<std::uintmax_t>(status.st_size) > longest_value) {
      throw CommError("rendezvous: " + path_ + "/" + name + " has " + std::to_string(status.st_size) +
                      " bytes, which no rank writes");
    }
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t count = ::read(file.get(), text.data() + done, text.size() - done);
      if (count == 0) errno = EIO;  // it is shorter than it was
      if (count == 0 || (count < 0 && errno != EINTR)) fail("read", name);
      if (count > 0) done += static_cast<std::size_t>(count);
    }
    return text;
  }

  // Two stores of one process may name the same directory, so the object's address belongs to the name.
  std::string host_and_process() const {
    return host_name() + "-" + std::to_string(::getpid()) + "-" + std::to_string(reinterpret_cast<std::uintptr_t>(this));
  }

  const std::string path_;  // for messages only: anyone who can write to its parent can put another directory there
  FileDescriptor directory_;
  std::atomic<std::uint64_t> next_temporary_{0};
};

}  // namespace

std::shared_ptr<Rendezvous> make_directory_rendezvous(const std::string& directory) {
  return std::make_shared<DirectoryRendezvous>(directory);
}

}  // namespace plait::comm
