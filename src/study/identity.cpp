#include "study/identity.h"

#include <spdlog/fmt/fmt.h>
#include <xxhash.h>

#include "config/schedule_file.h"

namespace plait::study {

std::string point_id(const Config& config, const std::string& commit, const std::string& machine) {
  // Each part is preceded by its length, so that no two different lists of parts give one text.
  std::string text;
  const std::string schedule = config.parallel.schedule_file ? config.parallel.schedule_file->text : "";
  for (const std::string& part : {to_yaml(config), schedule, commit, machine}) text += fmt::format("{}:{}", part.size(), part);
  const XXH128_hash_t digest = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

}  // namespace plait::study
