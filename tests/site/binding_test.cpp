#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "launch/launch_plan.h"
#include "site/rank_binding.h"
#include "topology/import.h"
#include "topology/topology_files.h"

namespace plait::launch {
namespace {

using testing::HasSubstr;

Device gpu(int index) { return {DeviceKind::cuda, index}; }
constexpr Device cpu{DeviceKind::host, 0};

TEST(RankBinding, IsOneLineForGpusOfOneNode) {
  const CpuTopology machine("package:2 [numa] core:4 pu:2");
  const CpuBinding zero = binding_for(machine, 0, "0-15"), one = binding_for(machine, 1, "0-15");
  EXPECT_EQ(site::binding_text({gpu(0), gpu(1), gpu(2), gpu(3)}, {zero, zero, one, one}),
            "cuda:0 to cuda:1 bound to NUMA node 0 (CPUs 0-7), cuda:2 to cuda:3 bound to NUMA node 1 (CPUs 8-15)");
}

TEST(RankBinding, SaysWhatIsNotBoundAndWhy) {
  const CpuTopology machine("package:2 [numa] core:4 pu:2");
  const std::string text =
      site::binding_text({gpu(0), gpu(1)}, {binding_for(machine, 1, "0-15"), binding_for(machine, 1, "0-3")});
  EXPECT_THAT(text,
              HasSubstr("cuda:0 bound to NUMA node 1 (CPUs 8-15), cuda:1 not bound: bound from outside to processors 0-3"));
}

TEST(RankBinding, RanksOnCpusAreNotBound) {
  EXPECT_EQ(site::binding_text({cpu, cpu}, RankBinding::automatic), "");
  const CpuTopology machine;
  EXPECT_FALSE(site::rank_binding(machine, cpu, RankBinding::automatic).possible());
  EXPECT_FALSE(site::rank_binding(machine, cpu, RankBinding::automatic).useful);
  const std::string before = cpus_of_this_thread();
  site::bind_rank(0, cpu, RankBinding::automatic);
  EXPECT_EQ(cpus_of_this_thread(), before);
}

TEST(RankBinding, NoneBindsNothingAndSaysSo) {
  const CpuTopology machine("package:2 [numa] core:4 pu:2");
  EXPECT_FALSE(site::rank_binding(machine, gpu(0), RankBinding::none).useful);
  EXPECT_EQ(site::binding_text({gpu(0), gpu(1)}, RankBinding::none), "cuda:0 to cuda:1 not bound: launch.bind is none");
  Config config;
  config.launch.device = "cpu";
  config.launch.bind = RankBinding::none;
  EXPECT_EQ(plan_launch(config).bind, RankBinding::none);
}

TEST(PlannedBinding, FollowsThePlacement) {
  const auto fabric = [](const char* file) {
    return topology::Fabric(topology::import_topology(topology::test::fixture(file)).graph);
  };
  EXPECT_EQ(site::planned_binding_text(fabric("two_sockets.xml"), {0, 1, 2, 3}),
            "ranks 0-2 on NUMA node 0, rank 3 on NUMA node 1");
  EXPECT_EQ(site::planned_binding_text(fabric("two_sockets.xml"), {2, 3, 0, 1}),
            "ranks 0 2-3 on NUMA node 0, rank 1 on NUMA node 1");
  EXPECT_EQ(site::planned_binding_text(fabric("rails_2x4.json"), {0, 1, 2, 3, 4, 5, 6, 7}),
            "every rank on the NUMA node of its GPU, 4 on each of 2 nodes of 2 hosts");
  EXPECT_EQ(site::planned_binding_text(fabric("rings_8.txt"), {0, 4, 1, 5}),
            "ranks 0 2 on NUMA node 0, ranks 1 3 on NUMA node 1");
}

TEST(GpuRankBinding, ABoundRankRunsOnItsGpusNode) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const CpuTopology machine;
  const CpuBinding binding = site::rank_binding(machine, gpu(0), RankBinding::automatic);
  if (!binding.possible()) GTEST_SKIP() << binding.obstacle;
  std::thread([&] {
    const std::string before = cpus_of_this_thread();
    site::bind_rank(0, gpu(0), RankBinding::none);
    EXPECT_EQ(cpus_of_this_thread(), before);
    site::bind_rank(0, gpu(0), RankBinding::automatic);
    EXPECT_EQ(cpus_of_this_thread(), binding.cpus);
  }).join();
}

}  // namespace
}  // namespace plait::launch
