// Holds a configuration against its rules.
#include <algorithm>

#include "config/schema.h"

namespace plait {
namespace config {
namespace {

std::vector<ConfigProblem> problems(const Config& config, const std::string& of) {
  std::vector<ConfigProblem> found;
  check(
      config, {},
      [&](const Field& field, const std::string& why) {
        found.push_back({field.path, yaml_text(field.get(config)), why, "", 0});
      },
      of);
  return found;
}

}  // namespace

void check(const Config& config, std::set<std::string> bad, const Report& report, const std::string& of) {
  for (const Field& field : fields()) {
    if (bad.contains(field.path)) continue;
    const std::string why = field.rule.broken(field.get(config));
    if (why.empty()) continue;
    bad.insert(field.path);
    if (of.empty()) report(field, why);
  }
  for (const CrossRule& rule : cross_rules()) {
    const bool judge = std::ranges::none_of(rule.keys, [&](const std::string& key) {
      return bad.contains(key) || (!rule.judges_open && is_left_to_planner(*find_field(key), config));
    });
    if (!judge || (!of.empty() && std::ranges::count(rule.keys, of) == 0)) continue;
    if (const std::string why = rule.broken(config); !why.empty()) report(*find_field(rule.keys.front()), why);
  }
}

}  // namespace config

std::vector<std::string> keys_left_to_planner(const Config& config) {
  std::vector<std::string> keys;
  for (const config::Field& field : config::fields()) {
    if (config::is_left_to_planner(field, config)) keys.push_back(field.path);
  }
  return keys;
}

std::vector<ConfigProblem> problems_of(const Config& config) { return config::problems(config, ""); }

std::vector<ConfigProblem> problems_on(Config config, const std::string& device) {
  config.launch.device = device;
  return config::problems(config, "launch.device");
}

}  // namespace plait
