// The GPUs that plait knows by name: what data sheets say of each, in one table. Peak rates (peak_flops.h), nominal profiles
// (device_profile.h) and assumed machines (assumed_topology.h) are read from it.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace plait::topology {

struct GpuVariant {
  std::array<std::string_view, 2> words;  // all of them stand in the name of such a device; an empty one always does
  double half_tflops = 0;                 // dense, 16-bit tensor cores with fp32 accumulation: bf16, on Volta fp16
  double single_tflops = 0;               // fp32 outside tensor cores
};

struct GpuModel {
  std::string_view name;        // "H200"
  std::string_view capability;  // "sm90"
  double memory_gb_per_s = 0, memory_gib = 0;
  int nvlink_lanes = 0;      // to a switch, in HGX and DGX machines; 0: PCIe only
  double pcie_gt_per_s = 0;  // of each of 16 lanes: 8, 16 and 32 are Gen3, 4 and 5
  // The first whose words match a name counts. The last is the one that all other figures describe. Unused ones have no words.
  std::array<GpuVariant, 4> variants;

  const GpuVariant& standard() const;
};

std::span<const GpuModel> gpu_models();

}  // namespace plait::topology
