// Calibrations: their file format, and costs that follow them.
#include "plan/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/collective.h"
#include "core/error.h"
#include "plan/communication_cost.h"
#include "plan/segment_cost.h"

namespace plait::plan {
namespace {

using parallel::InstructionKind;
using testing::HasSubstr;

Calibration example() {
  return {.device = "NVIDIA H200",
          .model = "some",
          .segments = {{model::SegmentKind::attention, 1, 4, Recompute::none, true, 1e-3, 1.5e-3, 0.9e-3},
                       {model::SegmentKind::attention, 2, 4, Recompute::none, true, 0.6e-3, 0.8e-3, 0.5e-3},
                       {model::SegmentKind::attention, 2, 4, Recompute::none, false, 0.55e-3, 0.75e-3, 0.45e-3}},
          .collectives = {{"all_reduce", 4, {{{1e3, 2e-5}, {1e6, 5e-5}, {1e8, 2e-3}}}}},
          .messages = {{"NV18", "direct", {{{1e3, 1e-5}, {1e6, 2e-5}}}}},
          .update_seconds_per_byte = 1e-11,
          .collective_slowdown = 0.1,
          .message_slowdown = std::nullopt,
          .context_bytes = 2e9,
          .collectives_bytes = 4e8,
          .communicators = {{2, 6e8}}};
}

TEST(Calibration, IsReadAsItWasWritten) {
  const Calibration c = example(), back = calibration_from(nlohmann::json::parse(to_json(c).dump()), "file");
  EXPECT_EQ(to_json(back), to_json(c));
  EXPECT_EQ(back.segments.size(), 3U);
  EXPECT_TRUE(back.segments[1].beside_head);
  EXPECT_FALSE(back.segments[2].beside_head);
  EXPECT_EQ(back.segments[1].tensor, 2);
  EXPECT_FALSE(back.message_slowdown.has_value());
  EXPECT_EQ(*back.context_bytes, 2e9);
  EXPECT_EQ(back.communicators.at(0).bytes, 6e8);
}

TEST(Calibration, WhatIsNoneIsRefusedByItsPlace) {
  const auto refused = [](const std::function<void(nlohmann::json&)>& spoil) {
    nlohmann::json json = nlohmann::json::parse(to_json(example()).dump());
    spoil(json);
    try {
      calibration_from(json, "file");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refused([](auto& j) { j = 3; }),
              HasSubstr("file: it is 3: must be an object; measure again with `plait bench calibrate`"));
  EXPECT_THAT(refused([](auto& j) { j["format"] = "x"; }),
              HasSubstr("'format' is \"x\": must be \"plait-calibration\": this is not a calibration"));
  EXPECT_THAT(refused([](auto& j) { j["segments"][1]["forward_s"] = -1; }),
              HasSubstr("'segments[1].forward_s' is -1: must be a number from 0 to 1e+06"));
  EXPECT_THAT(refused([](auto& j) { j["segments"][1]["forward_s"] = 1e300; }),
              HasSubstr("'segments[1].forward_s' is 1e+300: must be a number from 0 to 1e+06"));
  EXPECT_THAT(refused([](auto& j) { j["segments"].clear(); }), HasSubstr("'segments' is [...]: must not be empty"));
  EXPECT_THAT(refused([](auto& j) { j["segments"][0]["kind"] = "tail"; }),
              HasSubstr("'segments[0].kind' is \"tail\": must be "));
  EXPECT_THAT(refused([](auto& j) { j["segments"][0]["tensor"] = 1.5; }), HasSubstr("whole number"));
  EXPECT_THAT(refused([](auto& j) { j["segments"][0]["beside_head"] = 1; }),
              HasSubstr("'segments[0].beside_head' is 1: must be true or false"));
  EXPECT_THAT(refused([](auto& j) { j["version"] = 2; }), HasSubstr("'version' is 2: must be 5"));
  EXPECT_THAT(refused([](auto& j) { j["collectives"][0]["seconds_by_bytes"] = {{1, 2}, {1, 3}}; }), HasSubstr("ascending"));
  EXPECT_THAT(refused([](auto& j) { j["messages"][0].erase("link"); }),
              HasSubstr("'messages[0].link' is missing: must be a string"));
  EXPECT_THAT(refused([](auto& j) { j["communicators"][0]["bytes"] = -1; }),
              HasSubstr("'communicators[0].bytes' is -1: must be a number from 0 to 1e+18"));
  EXPECT_THAT(refused([](auto& j) { j["context_bytes"] = "much"; }),
              HasSubstr("'context_bytes' is \"much\": must be a number"));
}

TEST(Calibration, CurvesAreLinesBetweenPoints) {
  const Curve curve = example().collectives[0].curve;
  EXPECT_DOUBLE_EQ(curve.seconds(10), 2e-5);
  EXPECT_DOUBLE_EQ(curve.seconds(1e6), 5e-5);
  EXPECT_NEAR(curve.seconds(1e8), 2e-3, 1e-12);
  EXPECT_NEAR(curve.seconds(2e8), 2e-3 + (2e-3 - 5e-5) * 1e8 / 9.9e7, 1e-9) << "at the last rate";
}

model::SegmentSizes measured_sizes(int tensor, std::int64_t micro_batch) {
  const Config config = parse_config(
      "model: {layers: 3, hidden: 64, heads: 8, ffn: 256, vocab: 384}\n"
      "data: {tokenizer: random, sequence_length: 32}\ntrain: {steps: 1, global_batch: 4, micro_batch: 4}\n");
  return {.shape = model::resolve_shape(config.model, 384, 32, tensor),
          .split = {0, tensor, tensor > 1},
          .micro_batch = {micro_batch, 32},
          .compute = DType::bf16,
          .recompute = model::Recompute::none};
}

TEST(SegmentCosts, WhatWasMeasuredCostsThatAndTheRestFollowsTheNearest) {
  const Machine nominal{.profile = topology::nominal_profile("h200"), .calibration = {}},
      measured{.profile = topology::nominal_profile("h200"), .calibration = example()};
  SegmentCosts exact(measured, measured_sizes(2, 4), true), without_head(measured, measured_sizes(2, 4), false);
  EXPECT_DOUBLE_EQ(exact.cost({InstructionKind::forward, 1}).seconds, 0.6e-3);
  EXPECT_DOUBLE_EQ(exact.cost({InstructionKind::backward_weight, 3}).seconds, 0.5e-3);
  EXPECT_DOUBLE_EQ(without_head.cost({InstructionKind::forward, 1}).seconds, 0.55e-3);
  EXPECT_FALSE(exact.extrapolated());
  EXPECT_FALSE(without_head.extrapolated());
  // Twice the rows: the nominal time × the ratio at the nearest measurement.
  SegmentCosts twice(measured, measured_sizes(2, 8), true), plain(nominal, measured_sizes(2, 8), true),
      plain_4(nominal, measured_sizes(2, 4), true);
  EXPECT_DOUBLE_EQ(
      twice.cost({InstructionKind::forward, 1}).seconds,
      plain.cost({InstructionKind::forward, 1}).seconds * 0.6e-3 / plain_4.cost({InstructionKind::forward, 1}).seconds);
  EXPECT_TRUE(twice.extrapolated());
  // The MLP and the head were not measured at all, so they stay nominal.
  for (const int segment : {2, 7}) {
    EXPECT_DOUBLE_EQ(exact.cost({InstructionKind::forward, segment}).seconds,
                     plain_4.cost({InstructionKind::forward, segment}).seconds);
  }
}

TEST(CommunicationCosts, CollectivesTakeStartRoundsAndBytes) {
  const Machine machine{.profile = topology::nominal_profile("h200"), .calibration = {}};
  const CommunicationCosts costs(machine);
  const RingSpeed ring{.gb_per_s = 100, .latency_us = 2};
  const topology::DeviceProfile& p = machine.profile;
  EXPECT_NEAR(costs.seconds(Collective::all_reduce, 4, 1e9, ring),
              p.collective_seconds + 6 * (p.round_seconds + 2e-6) + 1.5e9 / 100e9, 1e-12);
  EXPECT_NEAR(costs.seconds(Collective::all_gather, 4, 1e9, ring),
              p.collective_seconds + 3 * (p.round_seconds + 2e-6) + 0.75e9 / 100e9, 1e-12);
  EXPECT_EQ(costs.seconds(Collective::all_gather, 1, 1e9, ring), 0);
}

// Pairs of several kinds were measured; the bandwidth of the way, known later, bounds the rest.
TEST(CommunicationCosts, PushesGoByTheFastestCurveWhoseStartHasTheLatencyInIt) {
  Machine machine{.profile = topology::nominal_profile("h200"), .calibration = Calibration()};
  const RingSpeed slow{.gb_per_s = 1e6, .latency_us = 1}, far{.gb_per_s = 1e6, .latency_us = 1000};
  const CommunicationCosts costs(machine);
  const auto seconds = [&](const RingSpeed& ring) {
    return costs.seconds(Collective::all_gather, 4, 4e6, ring, {.way = CollectiveWay::links});
  };
  EXPECT_NEAR(seconds(far) - seconds(slow), 999e-6, 1e-9) << "nothing was measured";
  const Curve sys{{{1e3, 2e-5}, {1e6, 1e-3}}}, nvlink{{{1e3, 5e-6}, {1e6, 2e-5}}};
  machine.calibration->messages = {{"SYS", "host", sys}, {"NV18", "direct", nvlink}};
  const double both = seconds(far);
  EXPECT_EQ(both, seconds(slow));
  machine.calibration->messages = {{"NV18", "direct", nvlink}};
  EXPECT_EQ(both, seconds(slow));
  EXPECT_LT(both, 1e-4);
}

// A kernel starts once for all ranks instead of once for each, at the price of SMs.
TEST(CommunicationCosts, KernelsPushSoonerAndSlowComputeDown) {
  const Machine machine{.profile = topology::nominal_profile("h200"), .calibration = {}};
  const CommunicationCosts costs(machine);
  for (const int ranks : {3, 4}) {
    const double bytes = 1e6 * ranks;
    const Work engines = costs.pushes(Collective::all_gather, ranks, bytes, 0, 0);
    const Work kernel = costs.pushes(Collective::all_gather, ranks, bytes, 0, 1 << 20);
    EXPECT_LT(kernel.seconds, engines.seconds / 2);
    EXPECT_EQ(kernel.bytes, engines.bytes);
    EXPECT_GT(kernel.compute_slowdown, engines.compute_slowdown + 0.1);
    EXPECT_GT(kernel.slowed_by_compute, 0);
    EXPECT_EQ(costs.pushes(Collective::all_gather, ranks, bytes, 0, 999'999).seconds, engines.seconds) << "too long for it";
    // The slowdown by copy engines was measured, and none works beside the kernel.
    Machine measured = machine;
    measured.calibration.emplace().message_slowdown = 0.08;
    const CommunicationCosts beside(measured);
    EXPECT_EQ(beside.pushes(Collective::all_gather, ranks, bytes, 0, 0).compute_slowdown, 0.08);
    EXPECT_EQ(beside.pushes(Collective::all_gather, ranks, bytes, 0, 1 << 20).compute_slowdown, kernel.compute_slowdown);
  }
  const double scales = 32;
  EXPECT_EQ(costs.push_kernels(Collective::all_reduce, 4, scales).seconds, 0) << "a part of the kernel that pushes";
  EXPECT_GT(costs.push_kernels(Collective::all_reduce, 4, 8192).seconds, 0);
}

TEST(CommunicationCosts, LittleIsSummedInOneStep) {
  const double least = static_cast<double>(link_collectives::most_reduced_by_all);
  EXPECT_EQ(push_rounds(Collective::all_reduce, 4, least), 1);
  EXPECT_EQ(push_bytes(Collective::all_reduce, 4, least), 3 * least);
  EXPECT_EQ(push_rounds(Collective::all_reduce, 4, least + 4), 2);
  EXPECT_DOUBLE_EQ(push_bytes(Collective::all_reduce, 4, least + 4), 1.5 * (least + 4));
  EXPECT_EQ(push_rounds(Collective::all_gather, 4, least), 1);
  EXPECT_EQ(push_bytes(Collective::all_reduce, 1, least), 0);
}

TEST(CommunicationCosts, AMeasuredCurveIsMetAloneAndBoundsTheSpeed) {
  const Machine machine{.profile = topology::nominal_profile("h200"), .calibration = example()};
  const CommunicationCosts costs(machine);
  const Work work = costs.collective(Collective::all_reduce, 4, 1e8);
  EXPECT_NEAR(work.seconds + work.bytes / (work.most_gb_per_s * 1e9), 2e-3, 1e-9);
  EXPECT_EQ(work.compute_slowdown, 0.1);
  const topology::Way nvlink{.channels = {}, .gb_per_s = 370, .latency_us = 1, .link = "NV18"},
      other{.channels = {}, .gb_per_s = 370, .latency_us = 1, .link = "PIX"};
  const Work message = costs.message(1e6, nvlink);
  EXPECT_NEAR(message.seconds + message.bytes / (message.most_gb_per_s * 1e9), 2e-5, 1e-12);
  EXPECT_EQ(costs.message(1e6, other).most_gb_per_s, 0) << "nobody measured that link";
}

}  // namespace
}  // namespace plait::plan
