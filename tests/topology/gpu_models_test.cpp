// Peaks, profiles and assumed machines, which come from one table of GPUs.
#include "topology/nominal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/units.h"
#include "topology/assumed_topology.h"
#include "topology/device_profile.h"

namespace plait::topology {
namespace {

TEST(PeakFlops, KnownNames) {
  const auto bf16 = [](std::string_view name) { return peak_flops(name, DType::bf16).value_or(0) / 1e12; };
  EXPECT_DOUBLE_EQ(bf16("Tesla V100-SXM2-32GB"), 125.0);
  EXPECT_DOUBLE_EQ(bf16("Tesla V100-PCIE-16GB"), 112.0);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA A100-SXM4-80GB"), 312.0);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA A100 80GB PCIe"), 312.0);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA H100 80GB HBM3"), 989.4);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA H100 PCIe"), 756.4);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA H100 NVL"), 835.5);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA H200"), 989.4);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA H200 NVL"), 835.5);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA B200"), 2250.0);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA L40S"), 362.05);
  EXPECT_DOUBLE_EQ(bf16("NVIDIA GeForce RTX 4090"), 165.2);
  EXPECT_DOUBLE_EQ(peak_flops("NVIDIA H200", DType::f32).value_or(0), 66.9e12);
  EXPECT_DOUBLE_EQ(peak_flops("NVIDIA H200", DType::e4m3).value_or(0), 2 * 989.4e12);
  EXPECT_DOUBLE_EQ(peak_flops("NVIDIA B200", DType::e4m3).value_or(0), 4500e12);
  EXPECT_FALSE(peak_flops("NVIDIA A100-SXM4-80GB", DType::e4m3).has_value()) << "before Ada and Hopper";
}

TEST(PeakFlops, NothingForUnknownOnes) {
  for (const char* name :
       {"NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA H20", "NVIDIA L40", "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 3090", "AMD EPYC 9654", ""}) {
    EXPECT_FALSE(peak_flops(name, DType::bf16).has_value()) << name;
  }
  EXPECT_FALSE(peak_flops("NVIDIA H200", DType::f64).has_value());
}

TEST(DeviceProfiles, NamesAreWholeWordsAndUnknownOnesAreRefused) {
  const auto name = [](std::string_view device) { return nominal_profile(device).name; };
  EXPECT_EQ(name("NVIDIA H200"), "H200");
  EXPECT_EQ(name("h100"), "H100");
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3"), "H100");
  EXPECT_EQ(name("NVIDIA A100-SXM4-80GB"), "A100");
  EXPECT_EQ(name("NVIDIA A100 80GB PCIe"), "A100");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(name("rtx4090"), "RTX 4090");
  EXPECT_EQ(name("Tesla V100-SXM2-32GB"), "V100");
  EXPECT_EQ(name("CPU"), "CPU core");
  for (const char* unknown :
       {"NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA L40", "NVIDIA RTX A1000", "A1000", "H20", "abacus", ""})
    EXPECT_THROW(nominal_profile(unknown), ConfigError) << unknown;
}

TEST(GpuModels, EveryOneHasAPeakAProfileAndAMachine) {
  std::vector<std::string> names = nominal_profile_names();
  ASSERT_EQ(names.back(), "CPU");
  names.pop_back();
  ASSERT_EQ(names.size(), gpu_models().size());
  for (const GpuModel& model : gpu_models()) {
    const DeviceProfile profile = nominal_profile(model.name);
    EXPECT_EQ(profile.name, model.name);
    EXPECT_GT(profile.memory_bytes, 0) << model.name;
    const std::string standard = std::string(model.standard().words[0]) + " " + std::string(model.standard().words[1]);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      ASSERT_TRUE(peak_flops(standard, dtype)) << standard;
      // What steps sustain of it.
      EXPECT_NEAR(matrix_flops(profile, dtype) / *peak_flops(standard, dtype),
                  dtype == DType::bf16 ? model.half_share.usual : 0.79, 1e-9)
          << standard;
    }
    const AssumedTopology two = assume_topology(DeviceKind::cuda, std::string(model.name), 2);
    EXPECT_EQ(two.graph.nodes.front().model, model.capability);
  }
}

TEST(GpuModels, MachinesHaveTheLinksThatTheyAreSoldWith) {
  struct Links {
    const char* device;
    double nvlink_gb_per_s, pcie_gb_per_s;
  };
  for (const Links& expected : {Links{"V100", 6 * 20.6, 12},
                                {"A100", 12 * 20.6, 24},
                                {"H100", 18 * 20.6, 48},
                                {"H200", 18 * 20.6, 48},
                                {"B200", 18 * 40.1, 48},
                                {"L40S", 0, 24},
                                {"RTX 4090", 0, 24}}) {
    double nvlink = 0, pcie = 0;
    const Graph graph = assume_topology(DeviceKind::cuda, expected.device, 2).graph;
    for (const Edge& edge : graph.edges) {
      if (edge.kind == LinkKind::nvlink) nvlink = edge.gb_per_s;
      if (edge.kind == LinkKind::pcie) pcie = edge.gb_per_s;
    }
    EXPECT_DOUBLE_EQ(nvlink, expected.nvlink_gb_per_s) << expected.device;
    EXPECT_DOUBLE_EQ(pcie, expected.pcie_gb_per_s) << expected.device;
  }
}

// Between two hosts; of GPUs that share a NIC, all at once get no more than it carries.
TEST(GpuModels, HostsHaveTheNetworkThatTheyAreSoldWith) {
  struct Network {
    const char* device;
    int nics_of_host;
    double gb_per_s;
  };
  for (const Network& expected : {Network{"V100", 4, 12.5},
                                  {"A100", 8, 25},
                                  {"H100", 8, 50},
                                  {"H200", 8, 50},
                                  {"B200", 8, 50},
                                  {"L40S", 4, 25},
                                  {"RTX 4090", 1, 1.25}}) {
    const AssumedTopology assumed = assume_topology(DeviceKind::cuda, expected.device, 16);
    int nics = 0;
    double carried = 0;
    for (const Node& node : assumed.graph.nodes) nics += node.kind == NodeKind::nic ? 1 : 0;
    for (const Edge& edge : assumed.graph.edges) {
      if (assumed.graph.nodes[static_cast<std::size_t>(edge.a)].kind == NodeKind::nic && edge.kind == LinkKind::network)
        carried = edge.gb_per_s;
    }
    EXPECT_EQ(nics, 2 * expected.nics_of_host) << expected.device;
    EXPECT_DOUBLE_EQ(carried, expected.gb_per_s) << expected.device;
  }
  EXPECT_THAT(assume_topology(DeviceKind::cuda, "rtx4090", 16).words, testing::HasSubstr("a 1.25 GB/s NIC per host"));
}

TEST(GpuModels, AVariantHasItsOwnRates) {
  EXPECT_DOUBLE_EQ(nominal_profile("NVIDIA H100 PCIe").half_peak_flops, 756.4e12);
  EXPECT_DOUBLE_EQ(nominal_profile("h100").half_peak_flops, 989.4e12);
  EXPECT_FALSE(nominal_profile("v100").has_bf16);
  EXPECT_TRUE(nominal_profile("a100").has_bf16);
}

TEST(GpuModels, ProfilesAreTheStandardVariants) {
  const DeviceProfile h200 = nominal_profile("H200");
  EXPECT_DOUBLE_EQ(h200.half_flops, 0.73 * 989.4e12);
  EXPECT_DOUBLE_EQ(h200.single_flops, 0.79 * 66.9e12);
  EXPECT_DOUBLE_EQ(h200.memory_bytes_per_s, 0.78 * 4800e9);
  EXPECT_DOUBLE_EQ(h200.memory_bytes, 139.8 * gib);
  EXPECT_DOUBLE_EQ(nominal_profile("V100").half_flops, 0.73 * 125e12);
  EXPECT_DOUBLE_EQ(nominal_profile("H100").half_flops, 0.79 * 989.4e12);
}

}  // namespace
}  // namespace plait::topology
