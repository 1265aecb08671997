#include "topology/peak_flops.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "core/units.h"
#include "topology/gpu_models.h"

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

}  // namespace plait::topology
