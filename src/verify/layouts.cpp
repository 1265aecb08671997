#include "verify/layouts.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/config_schema.h"
#include "core/error.h"
#include "core/schedule_file.h"
#include "verify/overrides.h"

namespace plait::verify {
namespace {

const std::string key_prefix = "parallel.";

// The numbers of ranks follow from the layout.
const std::string any_ranks = "launch.ranks=auto";

struct LayoutKey {
  const char* name;
  std::string (*value)(const ParallelConfig&);
  bool is_path = false;
};

// In reading order.
constexpr LayoutKey keys[] = {
    {"pipeline", [](const ParallelConfig& p) { return std::to_string(p.pipeline); }},
    {"data", [](const ParallelConfig& p) { return std::to_string(p.data); }},
    {"tensor", [](const ParallelConfig& p) { return std::to_string(p.tensor); }},
    {"schedule", [](const ParallelConfig& p) { return p.schedule_file ? "" : schedule_name(p); }},
    {"schedule.file", [](const ParallelConfig& p) { return p.schedule_file ? schedule_name(p) : ""; }, true},
    {"virtual_stages", [](const ParallelConfig& p) { return std::to_string(p.virtual_stages); }},
    {"stages", [](const ParallelConfig& p) { return fmt::format("[{}]", fmt::join(p.stages, ", ")); }},
    {"zero", [](const ParallelConfig& p) { return std::to_string(p.zero); }},
    {"sequence_parallel", [](const ParallelConfig& p) { return std::string(p.sequence_parallel ? "true" : "false"); }},
    {"recompute", [](const ParallelConfig& p) { return p.recompute ? to_string(*p.recompute) : std::string("auto"); }},
};

LayoutRequest request_of(const ParallelConfig& layout, const ParallelConfig& base) {
  LayoutRequest request{layout_text(layout, base), {any_ranks}};
  for (const LayoutKey& key : keys) {
    std::string value = key.value(layout);
    if (value.empty()) continue;
    if (key.is_path) value = config::yaml_text(value, {});  // it may contain any characters
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
    if (mesh.pipeline == 1 && row.kind != usual) continue;
    // Interleaved with one chunk is 1F1B.
    for (int chunks = row.kind == ScheduleKind::interleaved ? 2 : 1; chunks <= (row.takes_any_chunks() ? 2 : 1); ++chunks) {
      ParallelConfig& layout = layouts.emplace_back(mesh);
      layout.schedule = row.kind;
      layout.virtual_stages = chunks;
    }
  }
  if (base.schedule_file && std::ssize(base.schedule_file->ranks) == mesh.pipeline) {
    ParallelConfig& layout = layouts.emplace_back(mesh);
    layout.schedule = base.schedule, layout.schedule_file = base.schedule_file;
  }
  return layouts;
}

// The alternatives for one mesh.
std::vector<ParallelConfig> layouts_of_mesh(const ParallelConfig& mesh, const ParallelConfig& base) {
  std::vector<ParallelConfig> layouts;
  for (ParallelConfig layout : schedules_of_mesh(mesh, base)) {
    for (layout.zero = 0; layout.zero <= (mesh.data > 1 ? 2 : 0); ++layout.zero) {
      layouts.push_back(layout);
      if (mesh.tensor > 1 && layout.zero == 0 && layout.schedule == mesh.schedule) {
        layouts.emplace_back(layout).sequence_parallel = false;
      }
    }
  }
  return layouts;
}

}  // namespace

LayoutRequest parse_layout(const std::string& text, const std::string& key) {
  if (text.find('=') == std::string::npos) {
    throw ConfigError({{key, text, "must be `all`, or keys of `parallel` with values, as in \"pipeline=2 tensor=2\"", "", 0}});
  }
  LayoutRequest request{text, {any_ranks, key_prefix + "data=1"}};
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
  for (int pipeline = 1; pipeline <= ranks; ++pipeline) {
    for (int data = 1; data <= ranks / pipeline; ++data) {
      const int tensor = ranks / pipeline / data;
      if (pipeline * data * tensor != ranks) continue;
      ParallelConfig mesh;
      mesh.pipeline = pipeline, mesh.data = data, mesh.tensor = tensor;
      mesh.recompute = base.recompute;
      for (const ParallelConfig& layout : layouts_of_mesh(mesh, base)) requests.push_back(request_of(layout, base));
    }
  }
  return requests;
}

std::vector<std::string> serial_overrides() {
  ParallelConfig serial;
  serial.data = 1;
  return request_of(serial, {}).overrides;
}

std::string layout_text(const ParallelConfig& layout, const ParallelConfig& base) {
  ParallelConfig usual;
  usual.data = 1;
  std::vector<std::string> parts;
  for (const LayoutKey& key : keys) {
    const std::string value = key.value(layout);
    // parse_layout sets data to 1 regardless of the configuration.
    const bool inherited = std::string(key.name) != "data" && key.value(base) != key.value(usual);
    if (!value.empty() && (value != key.value(usual) || inherited)) parts.push_back(key.name + ("=" + value));
  }
  return parts.empty() ? "data=1" : fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace plait::verify
