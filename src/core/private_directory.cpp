#include "core/private_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "core/error.h"

namespace plait {
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
