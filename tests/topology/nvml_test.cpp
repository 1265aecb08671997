#include "topology/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device.h"
#include "test_paths.h"

namespace plait::topology {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* a = "0000:01:00.0";
constexpr const char* b = "0000:02:00.0";
constexpr const char* c = "0000:03:00.0";
constexpr const char* d = "0000:04:00.0";

TEST(TopologyBusId, HasOneForm) {
  EXPECT_EQ(bus_id_from("0000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(bus_id_from("00000000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(bus_id_from("00000001:AB:1F.7"), "0001:ab:1f.7");
  EXPECT_EQ(bus_id_from("00010000:ab:1f.7"), "10000:ab:1f.7");
  EXPECT_EQ(bus_id_from("10000:ab:1f.7"), "10000:ab:1f.7");
}

TEST(TopologyBusId, IsNothingElse) {
  for (const char* const text :
       {"", "1b:00.0", "000:1b:00.0", "0000:1b:00", "0000:1b:00.00", "0000-1b:00.0", "0000:1b-00.0", "0000:1b:00:0",
        "0000:1g:00.0", "0000:1b:00.g", "000000000:1b:00.0", "0000:1b:00.0 ", "-000:1b:00.0"}) {
    EXPECT_EQ(bus_id_from(text), std::nullopt) << text;
  }
}

TEST(TopologyNvml, WhereThereIsNoneEverythingIsUnknown) {
  for (const char* const library : {"libplait-has-no-such-nvml.so.1", "libm.so.6"}) {
    const Nvml nvml(library);
    EXPECT_THAT(nvml.why_missing(), HasSubstr(library));
    EXPECT_EQ(nvml.driver_version(), std::nullopt);
    EXPECT_FALSE(nvml.knows(a));
    EXPECT_THAT(nvml.nvlinks(a), IsEmpty());
    EXPECT_EQ(nvml.pcie_path(a, b), std::nullopt);
    EXPECT_EQ(nvml.peer_obstacle(a, b), std::nullopt);
  }
}

class TopologyFakeNvml : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(nvml.why_missing(), ""); }
  Nvml nvml{test_paths::fake_nvml};
};

TEST_F(TopologyFakeNvml, TellsHowAGpuIs) {
  const GpuConditions calm = nvml.conditions(a), hot = nvml.conditions(b), silent = nvml.conditions(d);
  EXPECT_EQ(calm.sm_clock_mhz, 1980);
  EXPECT_EQ(calm.power_w, 650.5);
  EXPECT_EQ(calm.temperature_c, 61);
  EXPECT_THAT(calm.throttle_reasons, IsEmpty()) << "a GPU without work does not throttle";
  EXPECT_EQ(nvml.conditions(a).energy_j.value() - calm.energy_j.value(), 70);
  EXPECT_THAT(hot.throttle_reasons, testing::ElementsAre("sw_power_cap", "hw_thermal_slowdown"));
  EXPECT_FALSE(silent.sm_clock_mhz || silent.power_w || silent.temperature_c || silent.energy_j);
  EXPECT_THAT(nvml.conditions("0000:05:00.0").throttle_reasons, IsEmpty());
}

TEST_F(TopologyFakeNvml, KnowsGpusByTheirAddress) {
  EXPECT_EQ(nvml.driver_version(), "580.82.07");
  EXPECT_TRUE(nvml.knows(a));
  EXPECT_FALSE(nvml.knows("0000:05:00.0"));
  EXPECT_THAT(nvml.nvlinks("0000:05:00.0"), IsEmpty());
  EXPECT_EQ(nvml.pcie_path(a, "0000:05:00.0"), std::nullopt);
  EXPECT_EQ(nvml.peer_obstacle(a, "0000:05:00.0"), std::nullopt);
}

TEST_F(TopologyFakeNvml, ListsGpusByAddressWithNameAndModel) {
  EXPECT_THAT(nvml.gpus(), testing::ElementsAre(a, b, c, d));
  EXPECT_EQ(nvml.name(a), "NVIDIA Fake");
  EXPECT_EQ(nvml.model(a), "sm90");
  EXPECT_EQ(nvml.model(d), std::nullopt);
  EXPECT_EQ(nvml.model("0000:05:00.0"), std::nullopt);
  EXPECT_THAT(Nvml("libplait-has-no-such-nvml.so.1").gpus(), IsEmpty());
}

TEST_F(TopologyFakeNvml, CountsTheNvLinksThatAreUp) {
  const auto links = nvml.nvlinks(a);
  ASSERT_THAT(links, SizeIs(2));
  for (int lane : {0, 1}) {
    EXPECT_EQ(links[static_cast<std::size_t>(lane)].lane, lane);
    EXPECT_EQ(links[static_cast<std::size_t>(lane)].end, NvLinkEnd::gpu);
    EXPECT_EQ(links[static_cast<std::size_t>(lane)].bus_id, b);
  }
  const auto to_switches = nvml.nvlinks(c);
  ASSERT_THAT(to_switches, SizeIs(3));
  for (const NvLink& link : to_switches) {
    EXPECT_EQ(link.end, NvLinkEnd::nvswitch);
    EXPECT_EQ(link.bus_id, "");
  }
}

TEST_F(TopologyFakeNvml, AddsUpTheC2cLinksThatAreUp) {
  EXPECT_EQ(nvml.c2c_links(d).links, 1);
  EXPECT_EQ(nvml.c2c_links(d).gb_per_s, 448);
  for (const char* const none : {a, "0000:05:00.0"}) EXPECT_EQ(nvml.c2c_links(none).links, 0) << none;
}

TEST_F(TopologyFakeNvml, TellsThePartOfAnNvlinkFabricOfSeveralHosts) {
  EXPECT_EQ(nvml.fabric_clique(a), "ab000000000000000000000000000001/7");
  EXPECT_EQ(nvml.fabric_clique(b), nvml.fabric_clique(a));
  EXPECT_EQ(nvml.fabric_clique(c), "") << "switches of one host";
  EXPECT_EQ(nvml.fabric_clique(d), "") << "still joining";
  EXPECT_EQ(nvml.fabric_clique("0000:05:00.0"), "");
}

TEST_F(TopologyFakeNvml, NamesPciePathsAsNvidiaSmiDoes) {
  EXPECT_EQ(nvml.pcie_path(a, b), "PIX");
  EXPECT_EQ(nvml.pcie_path(c, d), "PHB");
  EXPECT_EQ(nvml.pcie_path(a, d), "SYS");
}

TEST_F(TopologyFakeNvml, TellsWhyThereIsNoPeerAccess) {
  EXPECT_EQ(nvml.peer_obstacle(a, b), "");
  EXPECT_THAT(nvml.peer_obstacle(c, d).value_or("unknown"), HasSubstr("registry key"));
  EXPECT_EQ(nvml.peer_obstacle(d, c), std::nullopt);
}

}  // namespace
}  // namespace plait::topology
