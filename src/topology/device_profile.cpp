#include "topology/device_profile.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/error.h"
#include "core/units.h"
#include "topology/nominal.h"

namespace plait::topology {
namespace {

// Words in a name that mean a slower device than the GPU it would match.
constexpr std::array<std::string_view, 4> lesser{"MIG", "LAPTOP", "MOBILE", "D"};

// "NVIDIA A100-SXM4-80GB" -> NVIDIA, A100, SXM4, 80GB. Whole words, so that GH200 does not match H200.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      words.back() += static_cast<char>(std::toupper(byte));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

}  // namespace

std::optional<double> peak_flops(std::string_view device_name, DType dtype) {
  if (dtype != DType::bf16 && dtype != DType::f32 && dtype != DType::e4m3) return std::nullopt;
  const std::vector<std::string> words = words_of(device_name);
  const auto has = [&](std::string_view word) {
    return word.empty() || std::find(words.begin(), words.end(), word) != words.end();
  };
  if (std::any_of(lesser.begin(), lesser.end(), has)) return std::nullopt;
  for (const GpuModel& model : gpu_models()) {
    for (const GpuVariant& variant : model.variants) {
      if (variant.words[0].empty() || !std::all_of(variant.words.begin(), variant.words.end(), has)) continue;
      if (dtype == DType::e4m3) {
        const double factor = model.fp8_factor();
        return factor > 0 ? std::optional(tera * factor * variant.half_tflops) : std::nullopt;
      }
      return tera * (dtype == DType::bf16 ? variant.half_tflops : variant.single_tflops);
    }
  }
  return std::nullopt;
}

namespace {

// The share of the data sheet's fp32 rate that a step sustains; an estimate, never measured.
constexpr double sustained_single = 0.79;

// The share of twice the sustained 16-bit rate. By themselves, for a third of a second on H200, products of a block run at 1.63
// to 1.75 times the bf16 rate, because the same power limit decides. In a step the other passes draw less power and leave the
// products more: those of GPT-2 1558M take 1.9 times less time.
constexpr double sustained_fp8 = 0.95;

// The error of predictions where steps were measured.
constexpr double a_tenth = 0.1;

StepInterval interval_by(const SustainedShare& share) {
  return {(1 - a_tenth) * share.usual / share.fastest, (1 + a_tenth) * share.usual / share.slowest,
          fmt::format("data sheet: products sustain {} to {} of it, and a tenth", share.slowest, share.fastest)};
}

// `device`: a name that may say more than the model.
DeviceProfile gpu_profile(const GpuModel& model, std::string_view device) {
  const double half = peak_flops(device, DType::bf16).value_or(model.standard().half_tflops * tera),
               single = peak_flops(device, DType::f32).value_or(model.standard().single_tflops * tera);
  // Other variants have other power limits.
  const bool is_measured = model.is_measured && half == model.standard().half_tflops * tera;
  return {.name = std::string(model.name),
          .has_bf16 = model.has_bf16,
          .half_peak_flops = half,
          .single_peak_flops = single,
          .fp8_peak_flops = model.fp8_factor() * half,
          .half_flops = model.half_share.usual * half,
          .single_flops = sustained_single * single,
          .fp8_flops = model.fp8_factor() * sustained_fp8 * model.half_share.usual * half,
          .memory_bytes_per_s = model.memory_share * model.memory_gb_per_s * giga,
          .memory_bytes = model.memory_gib * gib,
          .half_interval = is_measured ? StepInterval{1 - a_tenth, 1 + a_tenth, "rates that its measured steps sustain"}
                                       : interval_by(model.half_share),
          .single_interval = interval_by({}),
          .fp8_interval = is_measured
                              ? StepInterval{1 - a_tenth, 1 + a_tenth, "rates that measured steps with FP8 on H200 sustain"}
                              : StepInterval{0.75, 1.35, "a guess: steps with FP8 products were measured on H200 alone"},
          .matrix_seconds = 7 * micro,
          .kernel_seconds = 3 * micro,
          .message_seconds = 11 * micro,
          .collective_seconds = 12 * micro,
          .round_seconds = 1 * micro,
          .collective_slowdown = 0.06,
          .context_bytes = 0.54 * gib,  // these three were measured on H200 with 2 ranks, docs/performance.md
          .collectives_bytes = 0.37 * gib,
          .communicator_bytes = 0.6 * gib};
}

// One rank with a core of its own: two 8-wide FMA units at 3 GHz give 96 GFLOP/s, of which OpenBLAS reaches most.
DeviceProfile core_profile() {
  const StepInterval guess{0.4, 3, "a guess: a core of 3 GHz to each rank, which others may share"};
  return {.name = "CPU core",
          .unit = "CPU rank",
          .half_flops = 0.5 * 70 * giga,
          .single_flops = 70 * giga,
          .fp8_flops = 0.5 * 70 * giga,  // operands are widened, then multiplied in fp32
          .memory_bytes_per_s = 10 * giga,
          .memory_bytes = 16 * gib,
          .half_interval = guess,
          .single_interval = guess,
          .fp8_interval = guess,
          .matrix_seconds = 2 * micro,
          .kernel_seconds = 2 * micro,
          .message_seconds = 10 * micro,
          .collective_seconds = 30 * micro,
          .round_seconds = 20 * micro,
          .collective_slowdown = 0.3,
          .context_bytes = 0,  // plait's own allocations are counted elsewhere
          .collectives_bytes = 0,
          .communicator_bytes = 0};
}

// The rest of `text` after `word`, if it begins with it, ignoring case and separators between letters and digits.
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

DeviceProfile nominal_profile(std::string_view device, const std::string& key) {
  std::string_view name = device;
  for (const std::string_view before : {"NVIDIA", "TESLA", "GEFORCE"}) name = behind(name, before).value_or(name);
  // GH200 and H20 are not H200, so the name has to stand alone, or after NVIDIA's own words.
  for (const GpuModel& model : gpu_models()) {
    const auto rest = behind(name, model.name);
    const bool goes_on = rest && !rest->empty() && std::isdigit(static_cast<unsigned char>(rest->front())) != 0;
    if (rest && !goes_on) return gpu_profile(model, device);
  }
  if (behind(device, "CPU")) return core_profile();
  std::string names;
  for (const std::string& known : nominal_profile_names()) names += (names.empty() ? "" : ", ") + known;
  throw ConfigError({{key, std::string(device),
                      "is not a device with known nominal figures; known are " + names +
                          "; name the one that comes nearest, or measure it with `plait bench calibrate`",
                      "", 0}});
}

double matrix_flops(const DeviceProfile& profile, DType dtype) {
  switch (dtype) {
    case DType::bf16: return profile.half_flops;
    case DType::e4m3: return profile.fp8_flops;
    case DType::f64: return profile.single_flops / 2;
    default: return profile.single_flops;
  }
}

const StepInterval& step_interval(const DeviceProfile& profile, DType dtype) {
  if (dtype == DType::e4m3) return profile.fp8_interval;
  return dtype == DType::bf16 ? profile.half_interval : profile.single_interval;
}

double peak_matrix_flops(const DeviceProfile& profile, DType dtype) {
  switch (dtype) {
    case DType::bf16: return profile.half_peak_flops;
    case DType::e4m3: return profile.fp8_peak_flops;
    case DType::f32: return profile.single_peak_flops;
    default: return 0;
  }
}

}  // namespace plait::topology
