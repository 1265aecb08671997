#include "bench/condition_sampler.h"

#include <gtest/gtest.h>

#include <thread>

#include "test_paths.h"

namespace plait::bench {
namespace {

TEST(ConditionSampler, GathersWhatNvmlTellsUntilTheEnd) {
  const topology::Nvml nvml(test_paths::fake_nvml);
  ASSERT_EQ(nvml.why_missing(), "");
  ConditionSampler sampler(nvml, {{{DeviceKind::cuda, 0}, "0000:02:00.0"}, {{DeviceKind::cuda, 1}, "0000:04:00.0"}});
  EXPECT_TRUE(sampler.end().empty()) << "it has not begun";
  sampler.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  const auto gpus = sampler.end();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].device, "cuda:0");
  EXPECT_EQ(gpus[0].sm_clock_mhz, 1200);
  EXPECT_EQ(gpus[0].power_w, 650.5);
  EXPECT_GE(gpus[0].energy_j, 140) << "asked at the beginning, at the end and between";
  EXPECT_EQ(gpus[0].throttle_reasons.size(), 2U);
  EXPECT_FALSE(gpus[1].energy_j.has_value()) << "what NVML does not tell is left out";
}

TEST(ConditionSampler, CpusAreNotAsked) {
  const topology::Nvml nvml(test_paths::fake_nvml);
  EXPECT_TRUE(sampled_gpus(nvml, {{DeviceKind::host, 0}}).empty());
  ConditionSampler sampler(nvml, {});
  sampler.begin();
  EXPECT_TRUE(sampler.end().empty());
}

}  // namespace
}  // namespace plait::bench
