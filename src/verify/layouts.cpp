#include "verify/layouts.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>
#include <sstream>

#include "config/schedule_file.h"
#include "config/schema.h"
#include "core/error.h"
#include "parallel/mesh.h"

namespace plait::verify {
namespace {

const std::string key_prefix = "parallel.";

// The numbers of ranks follow from the layout.
const std::string any_ranks = "launch.ranks=auto";

struct LayoutKey {
  std::string name;
  std::function<std::string(const ParallelConfig&)> value;
  bool is_path = false;
};

// In the order in which a layout is read.
std::vector<LayoutKey> layout_keys() {
  std::vector<LayoutKey> keys;
  for (const Name<Axis>& axis : names<Axis>)
    keys.push_back({std::string(axis.text), [axis](const ParallelConfig& p) { return to_string(p.size[axis.value]); }});
  const std::vector<LayoutKey> others{
      {"schedule", [](const ParallelConfig& p) { return p.schedule_file ? std::string() : schedule_name(p); }},
      {"schedule.file", [](const ParallelConfig& p) { return p.schedule_file ? schedule_name(p) : std::string(); }, true},
      {"virtual_stages", [](const ParallelConfig& p) { return to_string(p.virtual_stages); }},
      {"stages", [](const ParallelConfig& p) { return fmt::format("[{}]", fmt::join(p.stages, ", ")); }},
      {"zero", [](const ParallelConfig& p) { return to_string(p.zero); }},
      {"sequence_parallel", [](const ParallelConfig& p) { return std::string(p.sequence_parallel ? "true" : "false"); }},
      {"recompute", [](const ParallelConfig& p) { return to_string(p.recompute); }},
  };
  keys.insert(keys.end(), others.begin(), others.end());
  return keys;
}

LayoutRequest request_of(const ParallelConfig& layout, const ParallelConfig& base) {
  LayoutRequest request{layout_text(layout, base), {any_ranks}};
  for (const LayoutKey& key : layout_keys()) {
    std::string value = key.value(layout);
    if (value.empty()) continue;
    if (key.is_path) value = config::yaml_text(value);  // it may contain any characters
    request.overrides.push_back(key_prefix + key.name + "=" + value);
  }
  return request;
}

// The schedules of a mesh: the built-in ones, and the file's of `base` if it is for as many ranks. Without a pipeline there is
// one.
std::vector<ParallelConfig> schedules_of_mesh(const ParallelConfig& mesh, const ParallelConfig& base) {
  const auto usual = mesh.schedule;
  std::vector<ParallelConfig> layouts;
  for (const ScheduleRow& row : built_in_schedules) {
    if (mesh.size[stage_axis] == 1 && row.kind != usual) continue;
    // Interleaved with one is 1F1B.
    for (int chunks = row.kind == ScheduleKind::interleaved ? 2 : 1; chunks <= (row.takes_any_chunks() ? 2 : 1); ++chunks) {
      ParallelConfig& layout = layouts.emplace_back(mesh);
      layout.schedule = row.kind;
      layout.virtual_stages = chunks;
    }
  }
  if (base.schedule_file && std::ssize(base.schedule_file->ranks) == mesh.size[stage_axis]) {
    ParallelConfig& layout = layouts.emplace_back(mesh);
    layout.schedule = base.schedule, layout.schedule_file = base.schedule_file;
  }
  return layouts;
}

// The alternatives for one mesh.
std::vector<ParallelConfig> layouts_of_mesh(const ParallelConfig& mesh, const ParallelConfig& base) {
  std::vector<ParallelConfig> layouts;
  for (ParallelConfig layout : schedules_of_mesh(mesh, base)) {
    for (int zero = 0; zero <= (product(mesh.size, replica_axes) > 1 ? 2 : 0); ++zero) {
      layout.zero = zero;
      layouts.push_back(layout);
      if (mesh.size[segment_axis] > 1 && zero == 0 && layout.schedule == mesh.schedule) {
        layouts.emplace_back(layout).sequence_parallel = false;
      }
    }
  }
  return layouts;
}

bool begins_override(const std::string& word) {
  const auto equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

}  // namespace

LayoutRequest parse_layout(const std::string& text, const std::string& key) {
  if (text.find('=') == std::string::npos) {
    throw ConfigError({{key, text, "must be `all`, or keys of `parallel` with values, as in \"pipeline=2 tensor=2\"", "", 0}});
  }
  LayoutRequest request{text, {any_ranks, axis_key(rest_axis) + "=1"}};
  std::set<std::string> given;
  for (const std::string& part : split_overrides(text, key)) {
    if (const std::string name = part.substr(0, part.find('=')); !given.insert(name).second)
      throw ConfigError({{key, text, "gives `" + name + "` twice", "", 0}});
    request.overrides.push_back(key_prefix + part);
  }
  return request;
}

std::vector<LayoutRequest> all_layouts(int ranks, const ParallelConfig& base) {
  std::vector<LayoutRequest> requests;
  for (const AxisSizes& sizes : parallel::meshes_of(ranks, axes_by_traffic.front())) {
    ParallelConfig mesh;
    mesh.size = sizes;
    mesh.recompute = base.recompute;
    for (const ParallelConfig& layout : layouts_of_mesh(mesh, base)) requests.push_back(request_of(layout, base));
  }
  return requests;
}

std::vector<std::string> serial_overrides() {
  ParallelConfig serial;
  serial.size = single_rank;
  return request_of(serial, {}).overrides;
}

std::string layout_text(const ParallelConfig& layout, const ParallelConfig& base) {
  ParallelConfig usual;
  usual.size = single_rank;
  std::vector<std::string> parts;
  for (const LayoutKey& key : layout_keys()) {
    const std::string value = key.value(layout);
    // parse_layout takes this axis for 1, whatever the configuration says.
    const bool inherited = key.name != to_string(rest_axis) && key.value(base) != key.value(usual);
    if (!value.empty() && (value != key.value(usual) || inherited)) parts.push_back(key.name + "=" + value);
  }
  return parts.empty() ? to_string(rest_axis) + "=1" : fmt::format("{}", fmt::join(parts, " "));
}

std::vector<std::string> split_overrides(const std::string& text, const std::string& key) {
  std::vector<std::string> list;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (begins_override(word)) {
      list.push_back(word);
    } else if (!list.empty()) {
      list.back() += " " + word;
    } else {
      throw ConfigError({{key, text, "'" + word + "' must have the form key=value", "", 0}});
    }
  }
  return list;
}

}  // namespace plait::verify
