#include "core/private_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <string>

#include "core/error.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

constexpr const char* pattern = "plait-temporary-XXXXXX";
constexpr std::time_t without_lock_s = 60;  // far longer than its maker needs to lock a new one

// A descriptor of the directory with the lock; -1 if another process has it, or it cannot be had.
int lock_directory(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  return -1;
}

bool is_old_and_ours(int directory) {
  struct stat status{};
  return ::fstat(directory, &status) == 0 && status.st_uid == ::geteuid() &&
         status.st_mtime < std::time(nullptr) - without_lock_s;
}

void remove_leftovers(const fs::path& folder) {
  const std::string_view name(pattern);
  const std::string_view prefix = name.substr(0, name.find('X'));
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string found = entry->path().filename().string();
    if (found.size() != name.size() || !found.starts_with(prefix)) continue;
    const int lock = lock_directory(entry->path());
    if (lock < 0) continue;
    std::error_code ignored;
    if (is_old_and_ours(lock)) fs::remove_all(entry->path(), ignored);
    ::close(lock);
  }
}

}  // namespace

PrivateDirectory::PrivateDirectory() {
  const fs::path folder = fs::temp_directory_path();
  remove_leftovers(folder);
  std::string name = (folder / pattern).string();
  if (!::mkdtemp(name.data())) throw CommError("cannot create the temporary directory " + name + ": " + errno_text());
  path_ = name;
  lock_ = lock_directory(path_);
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace plait
