#include "checkpoint/run_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/checkpoint_directory.h"
#include "core/error.h"
#include "core/file.h"

namespace plait::checkpoint {
namespace fs = std::filesystem;

fs::path create_run_directory(const RunConfig& run) {
  std::error_code error;
  fs::create_directories(run.dir, error);
  if (error) throw ConfigError({{"run.dir", run.dir, "cannot be created: " + error.message(), "", 0}});
  for (int number = 1;; ++number) {
    const fs::path path = fs::path(run.dir) / (number == 1 ? run.name : run.name + "-" + std::to_string(number));
    if (::mkdir(path.c_str(), 0700) == 0) return path;
    if (errno != EEXIST) {
      throw ConfigError({{"run.dir", path.string(), std::string("cannot be created: ") + std::strerror(errno), "", 0}});
    }
  }
}

fs::path run_directory_of(const fs::path& path) {
  return step_of(path) ? path.lexically_normal().parent_path().parent_path() : path;
}

Config load_run_config(const fs::path& run_dir, const std::vector<std::string>& overrides) {
  const fs::path path = run_dir / "config.yaml";
  if (!fs::exists(path)) {
    throw ConfigError(run_dir.string() + ": not a run directory: it holds no config.yaml");
  }
  return load_config(path.string(), overrides);
}

}  // namespace plait::checkpoint
