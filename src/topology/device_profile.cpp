#include "topology/device_profile.h"

#include <cctype>
#include <optional>

#include "core/error.h"
#include "core/units.h"
#include "topology/gpu_models.h"

namespace plait::topology {
namespace {

// What large products and copies reach of the data sheet's rate: 770 to 800 of 989 TFLOP/s and 4.3 of 4.8 TB/s were measured on
// H200.
constexpr double reached_flops = 0.79, reached_bytes = 0.89;

DeviceProfile gpu_profile(const GpuModel& model) {
  return {.name = std::string(model.name),
          .half_flops = reached_flops * model.standard().half_tflops * tera,
          .single_flops = reached_flops * model.standard().single_tflops * tera,
          .memory_bytes_per_s = reached_bytes * model.memory_gb_per_s * giga,
          .memory_bytes = model.memory_gib * gib,
          .matrix_seconds = 6 * micro,
          .kernel_seconds = 3 * micro,
          .message_seconds = 6 * micro,
          .collective_seconds = 12 * micro,
          .round_seconds = 1 * micro,
          .collective_slowdown = 0.06,
          .context_bytes = 0.54 * gib,  // these three as measured on H200 with 2 ranks, docs/performance.md
          .collectives_bytes = 0.37 * gib,
          .communicator_bytes = 0.6 * gib};
}

// One rank with a core of its own: two 8-wide FMA units at 3 GHz give 96 GFLOP/s, of which OpenBLAS reaches most.
DeviceProfile core_profile() {
  return {.name = "CPU core",
          .half_flops = 0.5 * 70 * giga,
          .single_flops = 70 * giga,
          .memory_bytes_per_s = 10 * giga,
          .memory_bytes = 16 * gib,
          .matrix_seconds = 2 * micro,
          .kernel_seconds = 2 * micro,
          .message_seconds = 10 * micro,
          .collective_seconds = 30 * micro,
          .round_seconds = 20 * micro,
          .collective_slowdown = 0.3,
          .context_bytes = 0,  // counted by what plait itself allocates
          .collectives_bytes = 0,
          .communicator_bytes = 0};
}

// What stands behind `word` in a text that begins with it, whatever separates letters and digits, in whatever case.
std::optional<std::string_view> behind(std::string_view text, std::string_view word) {
  const auto is_separator = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; };
  const auto upper = [](char c) { return std::toupper(static_cast<unsigned char>(c)); };
  for (const char wanted : word) {
    if (is_separator(wanted)) continue;
    while (!text.empty() && is_separator(text.front())) text.remove_prefix(1);
    if (text.empty() || upper(text.front()) != upper(wanted)) return std::nullopt;
    text.remove_prefix(1);
  }
  return text;
}

}  // namespace

std::vector<std::string> nominal_profile_names() {
  std::vector<std::string> names;
  for (const GpuModel& model : gpu_models()) names.emplace_back(model.name);
  names.emplace_back("CPU");
  return names;
}

DeviceProfile nominal_profile(std::string_view device) {
  std::string_view name = device;
  for (const std::string_view before : {"NVIDIA", "TESLA", "GEFORCE"}) name = behind(name, before).value_or(name);
  // GH200 and H20 are no H200; so the name has to stand alone, or behind NVIDIA's own words.
  for (const GpuModel& model : gpu_models()) {
    const auto rest = behind(name, model.name);
    const bool goes_on = rest && !rest->empty() && std::isdigit(static_cast<unsigned char>(rest->front())) != 0;
    if (rest && !goes_on) return gpu_profile(model);
  }
  if (behind(device, "CPU")) return core_profile();
  std::string names;
  for (const std::string& known : nominal_profile_names()) names += (names.empty() ? "" : ", ") + known;
  throw ConfigError("no nominal profile of device '" + std::string(device) + "': known are " + names +
                    ". Measure it with `plait bench calibrate`, or name the device that comes nearest with --device");
}

double matrix_flops(const DeviceProfile& profile, DType dtype) {
  switch (dtype) {
    case DType::bf16: return profile.half_flops;
    case DType::f64: return profile.single_flops / 2;
    default: return profile.single_flops;
  }
}

}  // namespace plait::topology
