// Locks a run directory, so that one job at a time works in it.
//
// There are two locks, which the kernel drops when their process ends, however it ends:
//   owner.lock   exclusive, held by rank 0's process; the file says which process that is
//   ranks.lock   shared, held by every rank's process: ranks of a job whose rank 0 was killed may still be writing a
//                checkpoint, so the next owner waits for the last of them
// A process with neither must not change anything in the directory: a live rank may be writing the leftovers there.
//
// They are flock(2) locks. NFS clients since Linux 2.6.12 pass these on to the server, as byte-range locks of the whole file,
// so that they hold between hosts (not with the mount options `nolock` and `local_lock=flock`); a client that does not come
// back keeps its locks until its lease ends (NFSv4) or it restarts (v3). fcntl(2)'s own byte-range locks reach the server too,
// but are dropped as soon as any descriptor of the file is closed anywhere in the process, and its open-file-description locks
// are missing on more file systems. Lustre has flock with the mount option `flock` (with `localflock` on one host). On a file
// system without locks the job goes on, and warning() says so.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "core/file.h"

namespace plait::checkpoint {

class RunLock {
 public:
  using Say = std::function<void(const std::string&)>;

  // Rank 0, before it reads or changes anything in the directory, which exists. ConfigError naming host and process of the
  // owner if another process has it. Waits up to `patience` for ranks of an earlier job, and tells `say` about it; then a
  // ConfigError too.
  static RunLock own(const std::filesystem::path& run_dir, std::chrono::milliseconds patience, const Say& say);

  // Another rank of the same job, once rank 0 has the directory.
  static RunLock join(const std::filesystem::path& run_dir);

  // Called before anything is made or removed under `run_dir`, which named the directory. Error if that path now leads to a
  // directory other than the locked one: it may be another job's.
  void require_in_place(const std::filesystem::path& run_dir) const;

  // The text that rank 0 wrote into owner.lock, which tells its directory from one of the same path elsewhere; "" on other
  // ranks.
  const std::string& owner() const { return signed_; }

  // True if owner.lock in `run_dir`, as seen here, contains that text. Recent writes may be seen late over a network, so it
  // looks again for up to `patience`.
  static bool is_owned_by(const std::filesystem::path& run_dir, const std::string& owner, std::chrono::milliseconds patience);

  // The reason why nothing keeps a second job out; "" if the locks work.
  const std::string& warning() const { return warning_; }

 private:
  RunLock() = default;

  FileDescriptor owner_, ranks_;
  std::string signed_, warning_;
};

}  // namespace plait::checkpoint
