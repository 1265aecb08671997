#include "checkpoint/run_lock.h"

#include <fcntl.h>
#include <spdlog/fmt/chrono.h>
#include <spdlog/fmt/fmt.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <thread>

#include "core/device.h"
#include "core/error.h"
#include "core/file.h"

namespace plait::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds retry_interval{20};
// Within this time a new owner has written its name into the file, and a process that only checks for an owner has gone.
constexpr milliseconds owner_settles{500};
constexpr std::size_t longest_owner = 400;

constexpr const char* owner_name = "owner.lock";
constexpr const char* ranks_name = "ranks.lock";

enum class Lock { taken, held_by_another, impossible };

// Open for writing, because NFS requires that for exclusive locks.
FileDescriptor open_lock(const std::filesystem::path& path) {
  FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!descriptor) throw ConfigError("cannot open " + path.string() + ": " + errno_text());
  return descriptor;
}

// `kind`: LOCK_EX or LOCK_SH.
Lock take(const FileDescriptor& descriptor, int kind, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    if (::flock(descriptor.get(), kind | LOCK_NB) == 0) return Lock::taken;
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Lock::impossible;
    if (Clock::now() >= deadline) return Lock::held_by_another;
    std::this_thread::sleep_for(retry_interval);
  }
}

// The text that the owner wrote; without an owner, the last one's.
std::string owner_of(const FileDescriptor& descriptor) {
  std::array<char, longest_owner> text{};
  const ssize_t bytes = ::pread(descriptor.get(), text.data(), text.size(), 0);
  std::string owner(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  owner.resize(std::min(owner.size(), owner.find('\n')));
  return owner.empty() ? "a process that has not said its name" : owner;
}

// Writes the owner's text and returns it as owner_of() reads it.
std::string sign(const FileDescriptor& descriptor, const std::filesystem::path& path) {
  const std::string owner =
      fmt::format("process {} on {}, since {:%Y-%m-%dT%H:%M:%SZ}", ::getpid(), host_name(), fmt::gmtime(std::time(nullptr)));
  const std::string text = owner + "\n";
  // On the disk before others look: over NFS they read the state of the last sync or close.
  if (::ftruncate(descriptor.get(), 0) != 0 ||
      ::pwrite(descriptor.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::fsync(descriptor.get()) != 0) {
    throw_file_error("write", path, errno);
  }
  return owner;
}

std::string no_locks(const std::filesystem::path& run_dir) {
  return fmt::format("the file system of {} has no locks ({}): nothing keeps a second job out of this run directory",
                     run_dir.string(), errno_text());
}

}  // namespace

RunLock RunLock::own(const std::filesystem::path& run_dir, milliseconds patience, const Say& say) {
  RunLock lock;
  const std::filesystem::path path = run_dir / owner_name;
  lock.owner_ = open_lock(path);
  const Lock owned = take(lock.owner_, LOCK_EX, owner_settles);
  if (owned == Lock::held_by_another) {
    throw ConfigError(fmt::format("{} is in use by another job: {}. Let that one end, or end it, and resume then",
                                  run_dir.string(), owner_of(lock.owner_)));
  }
  if (owned == Lock::impossible) {
    lock.warning_ = no_locks(run_dir);
    lock.signed_ = sign(lock.owner_, path);
    return lock;
  }
  const std::string before = owner_of(lock.owner_);
  lock.signed_ = sign(lock.owner_, path);
  lock.ranks_ = open_lock(run_dir / ranks_name);
  Lock alone = take(lock.ranks_, LOCK_EX, milliseconds(0));
  if (alone == Lock::held_by_another) {
    const std::string ranks = fmt::format("ranks of the job that owned {} last ({})", run_dir.string(), before);
    say("waiting for " + ranks + " to end");
    alone = take(lock.ranks_, LOCK_EX, patience);
    if (alone == Lock::held_by_another) throw ConfigError(ranks + " still run; end them, and resume then");
  }
  // Nobody can come between, since that requires the owner's lock.
  if (alone == Lock::impossible || take(lock.ranks_, LOCK_SH, milliseconds(0)) != Lock::taken)
    lock.warning_ = no_locks(run_dir);
  return lock;
}

bool RunLock::is_owned_by(const std::filesystem::path& run_dir, const std::string& owner, milliseconds patience) {
  const std::filesystem::path path = run_dir / owner_name;
  const auto deadline = Clock::now() + patience;
  for (;;) {
    // Opened anew each time, because that is when NFS asks the server.
    const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!descriptor && errno != ENOENT && errno != ENOTDIR && errno != ESTALE) throw_file_error("open", path, errno);
    if (descriptor && owner_of(descriptor) == owner) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(retry_interval);
  }
}

RunLock RunLock::join(const std::filesystem::path& run_dir) {
  RunLock lock;
  lock.ranks_ = open_lock(run_dir / ranks_name);
  switch (take(lock.ranks_, LOCK_SH, owner_settles)) {
    case Lock::taken: break;
    case Lock::held_by_another: throw CommError("another job has taken " + run_dir.string() + " over from rank 0");
    case Lock::impossible: lock.warning_ = no_locks(run_dir);
  }
  return lock;
}

void RunLock::require_in_place(const std::filesystem::path& run_dir) const {
  std::error_code ignored;
  if (!std::filesystem::is_directory(run_dir, ignored)) return;  // a writer reports that
  const std::filesystem::path path = run_dir / (owner_ ? owner_name : ranks_name);
  struct stat held{};
  if (::fstat((owner_ ? owner_ : ranks_).get(), &held) == 0 && identity_at(path) == FileIdentity{held.st_dev, held.st_ino})
    return;
  throw Error(
      fmt::format("the run's directory {} was moved or replaced while the run went on: {} is not the one that this job "
                  "holds. Nothing was written there; resume the run where its directory is now",
                  run_dir.string(), path.string()));
}

}  // namespace plait::checkpoint
