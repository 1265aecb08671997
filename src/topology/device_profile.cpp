#include "topology/device_profile.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/error.h"
#include "core/units.h"

namespace plait::topology {
namespace {

// What large products and copies reach of the data sheet's rate: 770 to 800 of 989 TFLOP/s and 4.3 of 4.8 TB/s were measured on
// H200.
constexpr double reached_flops = 0.79, reached_bytes = 0.89;

struct ProfileRow {
  std::string_view name;
  double half_tflops, single_tflops;  // data sheets, dense; those of plan/peak_flops.cpp
  double memory_gb_per_s, memory_gib;
};

// Data sheets: V100 SXM2 32 GB, A100 SXM4 80 GB, H100 SXM5 80 GB, H200 SXM 141 GB, HGX B200 180 GB, L40S 48 GB, RTX 4090 24 GB.
constexpr std::array gpus{
    ProfileRow{"V100", 125, 15.7, 900, 31.7},        ProfileRow{"A100", 312, 19.5, 2039, 79.1},
    ProfileRow{"H100", 989.4, 66.9, 3352, 79.1},     ProfileRow{"H200", 989.4, 66.9, 4800, 139.8},
    ProfileRow{"B200", 2250, 75, 7700, 178.3},       ProfileRow{"L40S", 362.05, 91.6, 864, 44.4},
    ProfileRow{"RTX 4090", 165.2, 82.6, 1008, 23.5},
};

DeviceProfile gpu_profile(const ProfileRow& row) {
  return {.name = std::string(row.name),
          .half_flops = reached_flops * row.half_tflops * tera,
          .single_flops = reached_flops * row.single_tflops * tera,
          .memory_bytes_per_s = reached_bytes * row.memory_gb_per_s * giga,
          .memory_bytes = row.memory_gib * gib,
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

std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      text += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return text;
}

}  // namespace

std::vector<std::string> nominal_profile_names() {
  std::vector<std::string> names;
  for (const ProfileRow& row : gpus) names.emplace_back(row.name);
  names.emplace_back("CPU");
  return names;
}

DeviceProfile nominal_profile(std::string_view device) {
  const std::string wanted = plain(device);
  // GH200 and H20 are no H200; so the name has to stand alone, or behind NVIDIA's own words.
  for (const ProfileRow& row : gpus) {
    const std::string known = plain(row.name);
    for (const std::string_view before : {"", "NVIDIA", "TESLA", "NVIDIAGEFORCE", "GEFORCE"}) {
      const std::string start = std::string(before) + known;
      if (!wanted.starts_with(start)) continue;
      const bool digit_follows =
          wanted.size() > start.size() && std::isdigit(static_cast<unsigned char>(wanted[start.size()])) != 0;
      if (!digit_follows || row.name == "A100" || row.name == "V100") return gpu_profile(row);
    }
  }
  if (wanted.starts_with("CPU")) return core_profile();
  std::string names;
  for (const std::string& name : nominal_profile_names()) names += (names.empty() ? "" : ", ") + name;
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
