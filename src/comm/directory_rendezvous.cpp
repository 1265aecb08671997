// A rendezvous between processes: a private directory that holds one file per key.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <string>

#include "comm/polled_rendezvous.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/host_name.h"

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

// Creates `path`, which must not exist, readable by this user alone.
void write_file(const std::string& path, const std::string& text) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) throw CommError("rendezvous: cannot create " + path + ": " + errno_text());
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
  if (failed || !closed) throw CommError("rendezvous: cannot write " + path + ": " + errno_text());
}

class DirectoryRendezvous final : public PolledRendezvous {
 public:
  explicit DirectoryRendezvous(std::string directory) : directory_(std::move(directory)) {
    if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
      throw CommError("rendezvous: cannot create directory " + directory_ + ": " + errno_text());
    }
    struct stat status{};
    if (::stat(directory_.c_str(), &status) != 0) {
      throw CommError("rendezvous: cannot use directory " + directory_ + ": " + errno_text());
    }
    if (!S_ISDIR(status.st_mode)) throw CommError("rendezvous: " + directory_ + " is not a directory");
    if (status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
      throw CommError("rendezvous: directory " + directory_ + " must belong to this user and be closed to others (chmod 700)");
    }
  }

  bool try_set(const std::string& key, const std::string& value) override { return publish(path_of(key), value); }

  std::optional<std::string> find(const std::string& key) override { return read(path_of(key)); }

  void abort(const std::string& reason) noexcept override {
    try {
      publish(abort_path(), reason);
    } catch (...) {
      // The directory may be gone, and with it the ranks that could read the reason.
      return;
    }
  }

 protected:
  std::optional<std::string> abort_reason() override { return read(abort_path()); }
  std::string place() const override { return " in " + directory_; }

 private:
  std::string path_of(const std::string& key) const {
    const std::string name = file_name(key);
    if (name.size() > 255) throw CommError("rendezvous: key '" + key + "' is too long for a file name");
    return directory_ + "/" + name;
  }
  std::string abort_path() const { return directory_ + "/abort"; }

  // Makes `path` appear with all of `text` in it, or returns false where it exists. link() is what makes this atomic and
  // exclusive, on NFS as well, where rename() would replace a key that somebody else set.
  bool publish(const std::string& path, const std::string& text) {
    const std::string temporary =
        directory_ + "/.tmp-" + host_and_process() + "-" + std::to_string(next_temporary_.fetch_add(1));
    write_file(temporary, text);
    const int linked = ::link(temporary.c_str(), path.c_str());
    const int link_error = errno;
    ::unlink(temporary.c_str());
    if (linked == 0) return true;
    if (link_error == EEXIST) return false;
    errno = link_error;
    throw CommError("rendezvous: cannot create " + path + ": " + errno_text());
  }

  static std::optional<std::string> read(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file && (errno == ENOENT || errno == ESTALE)) return std::nullopt;  // ESTALE: NFS, of a file that is gone
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) throw CommError("rendezvous: cannot open " + path + ": " + errno_text());
    if (status.st_size < 0 || static_cast<std::uintmax_t>(status.st_size) > longest_value) {
      throw CommError("rendezvous: " + path + " has " + std::to_string(status.st_size) + " bytes, which no rank writes");
    }
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t count = ::read(file.get(), text.data() + done, text.size() - done);
      if (count == 0) errno = EIO;  // it is shorter than it was
      if (count == 0 || (count < 0 && errno != EINTR)) throw CommError("rendezvous: cannot read " + path + ": " + errno_text());
      if (count > 0) done += static_cast<std::size_t>(count);
    }
    return text;
  }

  // Two stores of one process may name the same directory, so the object's address belongs to the name.
  std::string host_and_process() const {
    return host_name() + "-" + std::to_string(::getpid()) + "-" + std::to_string(reinterpret_cast<std::uintptr_t>(this));
  }

  std::string directory_;
  std::atomic<std::uint64_t> next_temporary_{0};
};

}  // namespace

std::shared_ptr<Rendezvous> make_directory_rendezvous(const std::string& directory) {
  return std::make_shared<DirectoryRendezvous>(directory);
}

}  // namespace plait::comm
