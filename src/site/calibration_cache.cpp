#include "site/calibration_cache.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "parallel/rank_plan.h"

namespace plait::site {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t most_calibration_bytes = std::uint64_t{16} << 20;

}  // namespace

std::string calibration_device(DeviceKind kind) {
  return kind == DeviceKind::cuda ? device_name({DeviceKind::cuda, 0}) : "CPU";
}

std::string model_key_of(const Config& config, std::int64_t vocab, DeviceKind kind) {
  Config alone = config;
  alone.model.vocab = vocab;
  alone.train.micro_batch = 1, alone.train.global_batch = 1;
  alone.parallel = ParallelConfig{};
  alone.parallel.size = single_rank;
  return plan::model_key(parallel::outline_job(alone, parallel::Decision{}, vocab, parallel::Layout{}, kind).sizes);
}

std::string calibration_path(const std::string& device, const std::string& model_key) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if ((!cache || !*cache) && (!home || !*home)) return "";
  const std::string folder = cache && *cache ? cache : std::string(home) + "/.cache";
  std::string name;
  for (const char c : device + "-" + model_key + "-v" + std::to_string(plan::calibration_version))
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return folder + "/plait/" + name + ".json";
}

plan::Calibration load_calibration(const std::string& path) {
  return plan::calibration_from(read_json_file(path, most_calibration_bytes), path);
}

void prepare_to_save(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !fs::exists(folder)) {
    fs::create_directories(folder, error);
    if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  }
  if (error) throw ConfigError(folder.string() + ": cannot be created: " + error.message());
  require_writable(path);
}

void save_calibration(const plan::Calibration& calibration, const std::string& path) {
  prepare_to_save(path);
  write_output(path, to_json(calibration).dump(2) + "\n");
}

std::optional<plan::Calibration> kept_calibration(const Config& config, std::int64_t vocab, DeviceKind kind) {
  const std::string path = calibration_path(calibration_device(kind), model_key_of(config, vocab, kind));
  if (path.empty() || !fs::exists(path)) return std::nullopt;
  return load_calibration(path);
}

}  // namespace plait::site
