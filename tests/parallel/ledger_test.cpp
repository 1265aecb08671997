// Every millisecond of a hand-made timeline is in one account of the ledger, and in the right one.
#include "parallel/ledger.h"
#include "parallel/collectives.h"
#include "parallel/late_peers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "parallel/job_plan.h"
#include "parallel/program/program_set.h"
#include "parallel/program/program_timeline.h"
#include "parallel/schedule_kinds.h"

namespace plait::parallel {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

Program with_streams(std::vector<StreamSpec> streams) {
  Program program;
  program.streams = std::move(streams);
  return program;
}

void expect_balanced(const Ledger& ledger) {
  EXPECT_NEAR(ledger.compute_ms + ledger.exposed_ms() + ledger.bubble_ms + ledger.other_ms, ledger.step_ms, 1e-9);
  for (const CommunicationKind kind : communication_kinds) {
    EXPECT_GE(ledger.of(kind).exposed_ms, 0) << to_string(kind);
    EXPECT_GE(ledger.of(kind).hidden_ms(), -1e-9) << to_string(kind);
  }
  double wire = 0;
  for (const PeerTimes& peer : ledger.peers) {
    EXPECT_GE(peer.late_ms, 0);
    wire += peer.wire_ms;
  }
  EXPECT_NEAR(wire, ledger.exposed_p2p_ms(), 1e-9);
}

// Backward of two segments; two buckets on the reduce stream; the norm waits for the last.
class Buckets : public testing::Test {
 protected:
  Buckets() : program_(with_streams({{StreamRole::compute, -1}, {StreamRole::reduce, -1}})) {
    program_.instructions = {
        {.kind = InstructionKind::backward_weight, .stream = 0, .segment = 1},
        {.kind = InstructionKind::collective, .stream = 1, .bucket = 0, .collective = gradient_sum(), .waits = {0}},
        {.kind = InstructionKind::backward_weight, .stream = 0, .segment = 0},
        {.kind = InstructionKind::collective,
         .stream = 1,
         .bucket = 1,
         .collective = gradient_sum(groups::replicas, 1),
         .waits = {2}},
        {.kind = InstructionKind::gradient_norm, .stream = 0, .waits = {3}}};
  }
  Program program_;
};

TEST_F(Buckets, AreHiddenWhileBackwardGoesOnAndExposedAfterIt) {
  const LedgerMaker maker(program_, {{Axis::data, 2}}, 0);
  EXPECT_EQ(maker.communication(), (std::vector{1, 3}));
  EXPECT_EQ(maker.waits(), (std::vector{4}));
  // Backward is done at 20; bucket 0 ran from 10 to 15, bucket 1 from 20 to 23.
  const Ledger ledger = maker.make({.end = 25, .communication = {{10, 15, {}}, {20, 23, {}}}, .waits = {{20, 23}}});
  expect_balanced(ledger);
  const KindTimes& buckets = ledger.of(CommunicationKind::gradient_buckets);
  EXPECT_EQ(buckets.count, 2);
  EXPECT_DOUBLE_EQ(buckets.total_ms, 8);
  EXPECT_DOUBLE_EQ(buckets.exposed_ms, 3);
  EXPECT_DOUBLE_EQ(buckets.hidden_ms(), 5);
  EXPECT_DOUBLE_EQ(ledger.compute_ms, 22);
  EXPECT_DOUBLE_EQ(ledger.bubble_ms, 0);
  EXPECT_DOUBLE_EQ(ledger.exposed_dp_ms(), 3);
}

TEST_F(Buckets, ThatQueueBehindEachOtherAreAllExposed) {
  const LedgerMaker maker(program_, {{Axis::data, 2}}, 0);
  // Bucket 0 still runs when backward ends at 20; bucket 1 starts after it, 0.5 ms late.
  const Ledger ledger = maker.make({.end = 40, .communication = {{12, 26, {}}, {26.5, 34, {}}}, .waits = {{20, 34.25}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.of(CommunicationKind::gradient_buckets).exposed_ms, 6 + 7.5);
  EXPECT_DOUBLE_EQ(ledger.other_ms, 0.5 + 0.25);
  EXPECT_DOUBLE_EQ(ledger.compute_ms, 20 + 5.75);
}

TEST_F(Buckets, OnTheComputeStreamAreExposedAltogether) {
  for (Instruction& i : program_.instructions) i.stream = 0, i.waits.clear();
  const LedgerMaker maker(program_, {{Axis::data, 2}}, 0);
  EXPECT_TRUE(maker.waits().empty());
  const Ledger ledger = maker.make({.end = 30, .communication = {{10, 15, {}}, {22, 26, {}}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.exposed_dp_ms(), 9);
  EXPECT_DOUBLE_EQ(ledger.hidden_ms(), 0);
  EXPECT_DOUBLE_EQ(ledger.compute_ms, 21);
}

TEST_F(Buckets, DoneBeforeTheWaitAreNotWhatItWaitedFor) {
  const LedgerMaker maker(program_, {{Axis::data, 2}}, 0);
  const Ledger ledger = maker.make({.end = 30, .communication = {{5, 8, {}}, {12, 19, {}}}, .waits = {{20, 21}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.exposed_ms(), 0);
  EXPECT_DOUBLE_EQ(ledger.other_ms, 1);
}

// A stage in the middle of a pipeline: activations in, one segment, activations out.
class Stage : public testing::Test {
 protected:
  Stage() : program_(with_streams({{StreamRole::compute, -1}, {StreamRole::receive, 0}, {StreamRole::send, 2}})) {
    for (int mb = 0; mb < 2; ++mb) {
      const int first = 3 * mb;
      program_.instructions.push_back(
          {.kind = InstructionKind::receive_activation, .stream = 1, .micro_batch = mb, .chunk = 0});
      program_.instructions.push_back(
          {.kind = InstructionKind::forward, .stream = 0, .micro_batch = mb, .segment = 1, .waits = {first}});
      program_.instructions.push_back(
          {.kind = InstructionKind::send_activation, .stream = 2, .micro_batch = mb, .chunk = 0, .waits = {first + 1}});
    }
    // One input slot, and one place to send from.
    program_.instructions[0].waits = {4};
    program_.instructions[1].waits.push_back(5);
    program_.instructions[3].waits = {1};
    program_.instructions[4].waits.push_back(2);
  }
  static constexpr Layout layout{{Axis::pipeline, 3}, {Axis::data, 2}};
  Program program_;
};

TEST_F(Stage, KnowsALateSenderFromASlowWire) {
  const LedgerMaker maker(program_, layout, layout.rank({{Axis::pipeline, 1}, {Axis::data, 1}, {Axis::tensor, 0}}));
  EXPECT_EQ(maker.communication(), (std::vector{0, 2, 3, 5}));
  EXPECT_EQ(maker.waits(), (std::vector{1, 4}));
  const Ledger ledger = maker.make({.end = 40,
                                    // receive 0: buffer free at 0, sender ready at 7, there at 9; receive 1: 19, 19, 24
                                    .communication = {{0, 9, 7}, {19, 20, {}}, {19, 24, 19}, {34, 35, {}}},
                                    .waits = {{0, 9}, {19, 24}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.bubble_ms, 7);
  EXPECT_DOUBLE_EQ(ledger.exposed_p2p_ms(), 2 + 5);
  EXPECT_DOUBLE_EQ(ledger.of(CommunicationKind::activations).total_ms, 7);
  EXPECT_EQ(ledger.of(CommunicationKind::activations).count, 2);
  EXPECT_DOUBLE_EQ(ledger.compute_ms, 40 - 14);
  EXPECT_DOUBLE_EQ(ledger.unsplit_ms, 0);
  // The peers are the other stages of the same replica.
  ASSERT_EQ(ledger.peers.size(), 1u);
  EXPECT_EQ(ledger.peers[0].rank, layout.rank({{Axis::pipeline, 0}, {Axis::data, 1}, {Axis::tensor, 0}}));
  EXPECT_DOUBLE_EQ(ledger.peers[0].late_ms, 7);
  EXPECT_DOUBLE_EQ(ledger.peers[0].wire_ms, 7);
}

TEST_F(Stage, CountsAsExposedWhatALinkDoesNotTell) {
  const LedgerMaker maker(program_, layout, layout.rank({{Axis::pipeline, 1}, {Axis::data, 0}, {Axis::tensor, 0}}));
  const Ledger ledger = maker.make(
      {.end = 40, .communication = {{0, 9, {}}, {19, 20, {}}, {19, 24, {}}, {34, 35, {}}}, .waits = {{0, 9}, {19, 24}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.bubble_ms, 0);
  EXPECT_DOUBLE_EQ(ledger.exposed_p2p_ms(), 14);
  EXPECT_DOUBLE_EQ(ledger.unsplit_ms, 14);
}

TEST_F(Stage, ChargesAWaitToWhatEndedLast) {
  const LedgerMaker maker(program_, layout, layout.rank({{Axis::pipeline, 1}, {Axis::data, 0}, {Axis::tensor, 0}}));
  // Block 1 of micro-batch 1 waits for its input, which is there at 21, and for the place it sends from, which is free only at
  // 30.
  const Ledger ledger = maker.make(
      {.end = 45, .communication = {{0, 0, 0}, {19, 30, {}}, {10, 21, 12}, {40, 41, {}}}, .waits = {{0, 0}, {19, 30}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.exposed_p2p_ms(), 11);
  EXPECT_DOUBLE_EQ(ledger.bubble_ms, 0);
  ASSERT_EQ(ledger.peers.size(), 1u);
  EXPECT_EQ(ledger.peers[0].rank, layout.rank({{Axis::pipeline, 2}, {Axis::data, 0}, {Axis::tensor, 0}}));
  // The receive's 9 ms are hidden; the send adds the time for which compute waited for it.
  EXPECT_DOUBLE_EQ(ledger.of(CommunicationKind::activations).total_ms, 9 + 11);
  EXPECT_DOUBLE_EQ(ledger.of(CommunicationKind::activations).hidden_ms(), 9);
}

TEST_F(Stage, FollowsTheChainOfMessagesOnAStream) {
  // Both messages are received before the first segment, as interleaved schedules do.
  program_.instructions[1].waits = {0};
  std::swap(program_.instructions[1], program_.instructions[3]);
  program_.instructions[0].waits.clear();
  program_.instructions[1].waits.clear();
  program_.instructions[2] = {.kind = InstructionKind::forward, .stream = 0, .micro_batch = 1, .segment = 1, .waits = {1}};
  program_.instructions.resize(3);
  const LedgerMaker maker(program_, layout, layout.rank({{Axis::pipeline, 1}, {Axis::data, 0}, {Axis::tensor, 0}}));
  // The second message was ready all the time, but could come only after the first, whose sender was late.
  const Ledger ledger = maker.make({.end = 20, .communication = {{0, 8, 6}, {8, 11, 8}}, .waits = {{1, 11}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.bubble_ms, 5);
  EXPECT_DOUBLE_EQ(ledger.exposed_p2p_ms(), 2 + 3);
}

TEST(Ledger, LooksBackIntoTheStepBefore) {
  Program program = with_streams({{StreamRole::compute, -1}, {StreamRole::reduce, -1}});
  program.instructions = {
      {.kind = InstructionKind::forward, .stream = 0, .segment = 0, .waits = {2}},
      {.kind = InstructionKind::update, .stream = 0},
      {.kind = InstructionKind::collective, .stream = 1, .bucket = 0, .collective = weight_gather(), .waits = {1}}};
  const LedgerMaker maker(program, {{Axis::data, 2}}, 0);
  // The gather of the step before ends at 4; the one of this step begins with its end, and nobody knows yet when it ends.
  const Ledger ledger =
      maker.make({.end = 20, .communication = {{20, never, {}}}, .previous = {{-3, 4, {}}}, .waits = {{0, 4}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.of(CommunicationKind::weight_gathers).exposed_ms, 4);
  EXPECT_DOUBLE_EQ(ledger.of(CommunicationKind::weight_gathers).total_ms, 4);
  EXPECT_DOUBLE_EQ(ledger.exposed_dp_ms(), 4);
  // The first step has no step before it.
  const Ledger first = maker.make({.end = 20, .communication = {{20, never, {}}}, .waits = {{0, 0.1}}});
  expect_balanced(first);
  EXPECT_DOUBLE_EQ(first.exposed_ms(), 0);
}

TEST(Ledger, TakesTheEndOfAPipelinesStepForABubble) {
  Program program = with_streams({{StreamRole::compute, -1}, {StreamRole::reduce, -1}});
  program.instructions = {
      {.kind = InstructionKind::collective, .stream = 1, .collective = barrier(groups::tied)},
      {.kind = InstructionKind::collective, .stream = 1, .bucket = 0, .collective = gradient_sum(groups::tied)},
      {.kind = InstructionKind::gradient_norm, .stream = 0, .waits = {1}},
      {.kind = InstructionKind::collective, .stream = 1, .collective = scalar_sum(), .waits = {2}},
      {.kind = InstructionKind::update, .stream = 0, .waits = {3}}};
  // The last stage is done at 10; the first one comes to the tied embedding at 30, which takes 2 ms, and to the scalars at 35.
  const StepTimes times{.end = 40, .communication = {{10, 30, {}}, {30, 32, {}}, {33, 36, {}}}, .waits = {{10, 32}, {33, 36}}};
  const LedgerMaker last_stage(program, {{Axis::pipeline, 2}}, 1);
  const Ledger pipeline = last_stage.make(times);
  expect_balanced(pipeline);
  EXPECT_DOUBLE_EQ(pipeline.bubble_ms, 20 + 3);
  EXPECT_DOUBLE_EQ(pipeline.exposed_dp_ms(), 2);
  EXPECT_DOUBLE_EQ(test::late_of(pipeline, -1), 23);
  EXPECT_EQ(pipeline.of(CommunicationKind::gradient_buckets).count, 2) << "meeting moves nothing";
  EXPECT_DOUBLE_EQ(pipeline.of(CommunicationKind::gradient_buckets).total_ms, 2);
  // Replicas all run the same program, so a slow reduction of scalars among them is communication.
  const LedgerMaker replica(program, {{Axis::data, 2}}, 1);
  EXPECT_DOUBLE_EQ(replica.make(times).exposed_dp_ms(), 2 + 3);
}

// Exchanges between two products: time for which compute waits is exposed, time beside the next product is hidden, and a norm
// by itself is compute.
TEST(Ledger, TimesExchangesAsItDoesMessages) {
  Program program = with_streams({{StreamRole::compute, -1}, {StreamRole::exchange, -1}});
  const BufferId product{BufferKind::product, 0, 0}, norm{BufferKind::norm, 2, 0};
  const Collective sum = row_collective(Operation::reduce_scatter, model::PassTensor::product, product),
                   gather = row_collective(Operation::all_gather, model::PassTensor::norm, norm);
  program.instructions = {
      {.kind = InstructionKind::forward, .stream = 0, .micro_batch = 0, .segment = 1},
      {.kind = InstructionKind::collective, .stream = 1, .micro_batch = 0, .segment = 2, .collective = sum, .waits = {0}},
      {.kind = InstructionKind::norm, .stream = 1, .micro_batch = 0, .segment = 2},
      {.kind = InstructionKind::collective, .stream = 1, .micro_batch = 0, .segment = 2, .collective = gather},
      {.kind = InstructionKind::forward, .stream = 0, .micro_batch = 1, .segment = 1},
      {.kind = InstructionKind::forward, .stream = 0, .micro_batch = 0, .segment = 2, .waits = {3}},
      {.kind = InstructionKind::norm, .stream = 0, .micro_batch = 0, .segment = 3}};
  const LedgerMaker maker(program, {{Axis::tensor, 2}}, 0);
  ASSERT_EQ(maker.communication(), std::vector<int>{3});
  EXPECT_EQ(maker.first_of(3), 1);
  EXPECT_EQ(maker.awaited(3), std::vector<int>{0});
  const Ledger ledger = maker.make({.end = 20, .communication = {{5, 12, {}}}, .waits = {{10, 12}}});
  expect_balanced(ledger);
  EXPECT_DOUBLE_EQ(ledger.compute_ms, 18);
  EXPECT_DOUBLE_EQ(ledger.exposed_tp_ms(), 2);
  EXPECT_DOUBLE_EQ(ledger.of(CommunicationKind::exchanges).total_ms, 7);
  EXPECT_EQ(ledger.of(CommunicationKind::exchanges).count, 1);
}

TEST(Ledger, SumsToAMean) {
  Ledger a, b;
  a.step_ms = 10, a.bubble_ms = 4, a.peers = {{2, 4, 0}};
  b.step_ms = 20, b.of(CommunicationKind::gradients) = {2, 5, 3}, b.peers = {{0, 1, 3}, {2, 2, 0}};
  LedgerSum sum;
  EXPECT_EQ(sum.mean().step_ms, 0);
  sum.add(a);
  sum.add(b);
  const Ledger mean = sum.mean();
  EXPECT_EQ(sum.steps(), 2);
  EXPECT_DOUBLE_EQ(mean.step_ms, 15);
  EXPECT_DOUBLE_EQ(mean.bubble_ms, 2);
  EXPECT_DOUBLE_EQ(mean.of(CommunicationKind::gradients).hidden_ms(), 1);
  ASSERT_EQ(mean.peers.size(), 2u);
  EXPECT_EQ(mean.peers[0].rank, 0);
  EXPECT_DOUBLE_EQ(mean.peers[1].late_ms, 3);
}

// Programs of real layouts with times drawn at random, in an order that streams and waits allow: the accounts always balance.
class LedgerOfPrograms : public testing::TestWithParam<std::tuple<ScheduleKind, int, bool>> {};

TEST_P(LedgerOfPrograms, BalancesWhateverTheTimes) {
  const auto& [schedule, zero, overlap] = GetParam();
  Config config;
  config.model.layers = 6, config.model.hidden = 64, config.model.heads = 8, config.model.vocab = 150, config.model.ffn = 128;
  config.data.sequence_length = 16;
  config.train.steps = 1, config.train.global_batch = 8, config.train.micro_batch = 1;
  config.comm.bucket_mb = 0.02, config.comm.overlap = overlap;
  config.parallel.size[Axis::pipeline] = 2, config.parallel.size[Axis::data] = 2, config.parallel.schedule = schedule,
  config.parallel.zero = zero;
  config.parallel.virtual_stages = some_virtual_stages(schedule);
  const auto plans = make_job_plan(config, Decision{}, 150, resolve_layout(config.parallel, 4), DeviceKind::host);
  const ProgramSet set = training_programs(plans);
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::exponential_distribution<double> cost(1);
    std::vector<std::vector<double>> costs;
    for (int rank = 0; rank < 4; ++rank) {
      costs.emplace_back(set.program(rank).instructions.size());
      for (double& c : costs.back()) c = cost(random);
    }
    const ProgramTimeline timeline = simulate(
        set, 2, [&](int rank, int index) { return costs[static_cast<std::size_t>(rank)][static_cast<std::size_t>(index)]; });
    ASSERT_TRUE(timeline.deadlock.empty());
    for (int rank = 0; rank < 4; ++rank) {
      const Program& program = set.program(rank);
      const std::size_t count = program.instructions.size();
      const auto& runs = timeline.ranks[static_cast<std::size_t>(rank)];
      const auto compute_end = [&](std::size_t before) {  // end of the compute stream's instructions listed before
        double end = 0;
        for (std::size_t n = 0; n < before; ++n) {
          if (program.stream_of(program.instructions[n % count]).role == StreamRole::compute) end = std::max(end, runs[n]->end);
        }
        return end;
      };
      const double begin = compute_end(count);
      const LedgerMaker maker(program, set.layout, rank);
      StepTimes times;
      times.end = compute_end(2 * count) - begin;
      for (const int n : maker.communication()) {
        const auto& now = *runs[count + static_cast<std::size_t>(n)];
        const auto& before = *runs[static_cast<std::size_t>(n)];
        times.communication.push_back({now.begin - begin, now.end - begin, {}});
        times.previous.push_back({before.begin - begin, before.end - begin, {}});
      }
      double standing = 0;
      for (const int n : maker.waits()) {
        const std::size_t place = count + static_cast<std::size_t>(n);
        const double waited_from = std::max(begin, compute_end(place));
        times.waits.push_back({waited_from - begin, std::max(waited_from, runs[place]->begin) - begin});
        standing += times.waits.back().end - times.waits.back().begin;
      }
      const Ledger ledger = maker.make(times);
      expect_balanced(ledger);
      EXPECT_GE(ledger.compute_ms, 0);
      double on_compute = 0;
      for (std::size_t c = 0; c < maker.communication().size(); ++c) {
        const Instruction& i = program.at(maker.communication()[c]);
        if (program.stream_of(i).role == StreamRole::compute)
          on_compute += times.communication[c].end - times.communication[c].begin;
      }
      EXPECT_NEAR(ledger.exposed_ms() + ledger.bubble_ms + ledger.other_ms, standing + on_compute, 1e-9);
      EXPECT_EQ(on_compute > 0, !overlap);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LedgerOfPrograms,
                         testing::Combine(testing::ValuesIn(built_in_kinds()), testing::Values(0, 1, 2), testing::Bool()));

}  // namespace
}  // namespace plait::parallel
