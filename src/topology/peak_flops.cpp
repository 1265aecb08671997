#include "topology/peak_flops.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "core/units.h"

namespace plait::topology {
namespace {

struct PeakRow {
  std::array<std::string_view, 2> words;  // all of them stand in the name; an empty one always does
  double half_tflops;                     // 16-bit tensor cores, dense, fp32 accumulation
  double single_tflops;                   // fp32 outside tensor cores
};

// NVIDIA's data sheets; where those give the rate with sparsity, half of it. The first row that fits counts.
constexpr std::array rows{
    // Tesla V100 and V100S data sheets. Volta has no bf16: this is fp16.
    PeakRow{{"V100S", ""}, 130.0, 16.4},
    PeakRow{{"V100", "SXM2"}, 125.0, 15.7},
    PeakRow{{"V100", "SXM3"}, 125.0, 15.7},
    PeakRow{{"V100", "PCIE"}, 112.0, 14.0},
    // A100 data sheet: SXM4 and PCIe, 40 and 80 GB, are equal.
    PeakRow{{"A100", ""}, 312.0, 19.5},
    // H100 architecture whitepaper v1.04, table 2, and H100 data sheet for NVL (1,671 with sparsity).
    PeakRow{{"H100", "PCIE"}, 756.4, 51.2},
    PeakRow{{"H100", "NVL"}, 835.5, 60.0},
    PeakRow{{"H100", "HBM3"}, 989.4, 66.9},
    PeakRow{{"H100", "SXM5"}, 989.4, 66.9},
    // H200 data sheet: SXM 1,979 and NVL 1,671 with sparsity.
    PeakRow{{"H200", "NVL"}, 835.5, 60.0},
    PeakRow{{"H200", ""}, 989.4, 66.9},
    // HGX B200 data sheet, eight GPUs: 36 PFLOP/s with sparsity, 600 TFLOP/s in fp32.
    PeakRow{{"B200", ""}, 2250.0, 75.0},
    // L40S data sheet.
    PeakRow{{"L40S", ""}, 362.05, 91.6},
    // Ada GPU architecture whitepaper, appendix A: bf16 accumulates in fp32.
    PeakRow{{"RTX", "4090"}, 165.2, 82.6},
};

// Words that make a name stand for something slower than the row it would fit.
constexpr std::array<std::string_view, 4> lesser{"MIG", "LAPTOP", "MOBILE", "D"};

// "NVIDIA A100-SXM4-80GB" -> NVIDIA, A100, SXM4, 80GB. Whole words, so that GH200 is not an H200.
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
  if (dtype != DType::bf16 && dtype != DType::f32) return std::nullopt;
  const std::vector<std::string> words = words_of(device_name);
  const auto has = [&](std::string_view word) {
    return word.empty() || std::find(words.begin(), words.end(), word) != words.end();
  };
  if (std::any_of(lesser.begin(), lesser.end(), has)) return std::nullopt;
  for (const PeakRow& row : rows) {
    if (std::all_of(row.words.begin(), row.words.end(), has)) {
      return tera * (dtype == DType::bf16 ? row.half_tflops : row.single_tflops);
    }
  }
  return std::nullopt;
}

}  // namespace plait::topology
