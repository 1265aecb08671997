#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "train/rank_binding.h"

namespace plait::train {
namespace {

using testing::HasSubstr;

Device gpu(int index) { return {DeviceKind::cuda, index}; }
constexpr Device cpu{DeviceKind::host, 0};

TEST(RankBinding, IsOneLineForGpusOfOneNode) {
  const CpuTopology machine("package:2 [numa] core:4 pu:2");
  const CpuBinding zero = binding_for(machine, 0, "0-15"), one = binding_for(machine, 1, "0-15");
  EXPECT_EQ(binding_text({gpu(0), gpu(1), gpu(2), gpu(3)}, {zero, zero, one, one}),
            "cuda:0 to cuda:1 bound to NUMA node 0 (CPUs 0-7), cuda:2 to cuda:3 bound to NUMA node 1 (CPUs 8-15)");
}

TEST(RankBinding, SaysWhatIsNotBoundAndWhy) {
  const CpuTopology machine("package:2 [numa] core:4 pu:2");
  const std::string text = binding_text({gpu(0), gpu(1)}, {binding_for(machine, 1, "0-15"), binding_for(machine, 1, "0-3")});
  EXPECT_THAT(text,
              HasSubstr("cuda:0 bound to NUMA node 1 (CPUs 8-15), cuda:1 not bound: bound from outside to processors 0-3"));
}

TEST(RankBinding, RanksOnCpusAreNotBound) {
  EXPECT_EQ(binding_text({cpu, cpu}), "");
  const CpuTopology machine;
  EXPECT_FALSE(rank_binding(machine, cpu).possible());
  EXPECT_FALSE(rank_binding(machine, cpu).useful);
  const std::string before = cpus_of_this_thread();
  bind_rank(0, cpu);
  EXPECT_EQ(cpus_of_this_thread(), before);
}

TEST(GpuRankBinding, ABoundRankRunsOnItsGpusNode) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const CpuTopology machine;
  const CpuBinding binding = rank_binding(machine, gpu(0));
  if (!binding.possible()) GTEST_SKIP() << binding.obstacle;
  std::thread([&] {
    bind_rank(0, gpu(0));
    EXPECT_EQ(cpus_of_this_thread(), binding.cpus);
  }).join();
}

}  // namespace
}  // namespace plait::train
