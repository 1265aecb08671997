// Transfers that share channels, and compute beside them: small programs with times known in advance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"
#include "parallel/collectives.h"
#include "plan/placement_machines.h"
#include "plan/simulation/simulator.h"
#include "plan/simulation_networks.h"

namespace plait::plan {
namespace {

using parallel::Group;
using parallel::InstructionKind;
using parallel::Program;
using parallel::ProgramSet;
using parallel::StreamRole;

// The instructions of every program here, the same at both ends of a message.
enum Index { before = 0, message = 1, beside = 2, scalars = 3, update = 4 };

// Pipeline rank 2k sends a message to 2k + 1. Both compute first, then the message goes while they compute again; all ranks end
// the step together.
class Pairs {
 public:
  explicit Pairs(int pairs, int data = 1) {
    set_.layout = {{Axis::pipeline, 2 * pairs}, {Axis::data, data}};
    set_.ends.last = 2 * pairs - 1;
    for (int rank = 0; rank < 2 * pairs; ++rank) {
      const bool sends = rank % 2 == 0;
      Program program;
      program.streams = {{StreamRole::compute, -1},
                         {sends ? StreamRole::send : StreamRole::receive, sends ? rank + 1 : rank - 1},
                         {StreamRole::reduce, -1}};
      program.instructions = {
          {.kind = InstructionKind::forward, .stream = 0},
          {.kind = sends ? InstructionKind::send_activation : InstructionKind::receive_activation,
           .stream = 1,
           .waits = {before}},
          {.kind = InstructionKind::backward_weight, .stream = 0},
          {.kind = InstructionKind::collective, .stream = 2, .collective = parallel::scalar_sum(), .waits = {message, beside}},
          {.kind = InstructionKind::update, .stream = 0, .waits = {scalars}}};
      set_.programs.push_back({program, {}});
    }
    for (int rank = 0; rank < set_.layout.ranks(); ++rank)
      set_.program_of.push_back(set_.layout.coordinate(rank, Axis::pipeline));
  }

  Work& work(int rank, Index index) { return works_[{rank, index}]; }

  Simulated simulate(const topology::Network& network, const std::vector<int>& gpus) {
    const auto work_of = [&](int rank, int index) { return works_[{rank, static_cast<Index>(index)}]; };
    return simulate_step(set_, work_of, network, gpus, {.keep_timeline = true});
  }

  const ProgramSet& set() const { return set_; }

 private:
  ProgramSet set_;
  std::map<std::pair<int, Index>, Work> works_;
};

double begin_of(const Simulated& s, int rank, Index index) { return s.timeline_of(rank)[index].begin; }
double end_of(const Simulated& s, int rank, Index index) { return s.timeline_of(rank)[index].end; }

// Places senders on the first half of the GPUs and receivers on the other.
std::vector<int> across(int pairs) {
  std::vector<int> gpus;
  for (int pair = 0; pair < pairs; ++pair) gpus.push_back(pair), gpus.push_back(pairs + pair);
  return gpus;
}

TEST(SimulatorFlows, AFlowAloneHasTheWholeChannel) {
  Pairs pairs(1);
  pairs.work(0, message) = {.seconds = 0.25, .bytes = 2e9};
  const Simulated s = pairs.simulate(two_halves(2, 10, 1), across(1));
  EXPECT_DOUBLE_EQ(begin_of(s, 0, message), 0);
  EXPECT_DOUBLE_EQ(s.timeline_of(0)[message].moved, 0.25);
  EXPECT_DOUBLE_EQ(end_of(s, 0, message), 2.25);
  EXPECT_DOUBLE_EQ(end_of(s, 1, message), 2.25);
  EXPECT_DOUBLE_EQ(s.step_seconds, 2.25);
  EXPECT_TRUE(s.settled);
}

TEST(SimulatorFlows, TwoFlowsHaveHalfOfAChannelEach) {
  Pairs pairs(2);
  for (const int sender : {0, 2}) pairs.work(sender, message) = {.bytes = 2e9};
  const Simulated s = pairs.simulate(two_halves(4, 10, 1), across(2));
  EXPECT_DOUBLE_EQ(end_of(s, 1, message), 4);
  EXPECT_DOUBLE_EQ(end_of(s, 3, message), 4);
}

TEST(SimulatorFlows, AFlowThatEndsGivesItsShareBack) {
  Pairs pairs(2);
  pairs.work(0, message) = {.bytes = 1e9};
  pairs.work(2, message) = {.bytes = 3e9};
  const Simulated s = pairs.simulate(two_halves(4, 10, 1), across(2));
  EXPECT_DOUBLE_EQ(end_of(s, 1, message), 2);
  EXPECT_DOUBLE_EQ(end_of(s, 3, message), 4);
}

TEST(SimulatorFlows, AFlowThatBeginsLaterTakesItsShareFromThen) {
  Pairs pairs(2);
  pairs.work(0, message) = {.bytes = 3e9};
  pairs.work(2, message) = {.bytes = 1e9};
  pairs.work(2, before) = {.seconds = 1};
  const Simulated s = pairs.simulate(two_halves(4, 10, 1), across(2));
  EXPECT_DOUBLE_EQ(begin_of(s, 3, message), 1);
  EXPECT_DOUBLE_EQ(end_of(s, 3, message), 3);
  EXPECT_DOUBLE_EQ(end_of(s, 1, message), 4);
}

TEST(SimulatorFlows, OppositeDirectionsDoNotShare) {
  Pairs pairs(2);
  for (const int sender : {0, 2}) pairs.work(sender, message) = {.bytes = 2e9};
  const Simulated s = pairs.simulate(two_halves(4, 10, 1), {0, 2, 3, 1});
  EXPECT_DOUBLE_EQ(end_of(s, 1, message), 2);
  EXPECT_DOUBLE_EQ(end_of(s, 3, message), 2);
}

TEST(SimulatorFlows, WithinAHalfNothingIsShared) {
  Pairs pairs(2);
  for (const int sender : {0, 2}) pairs.work(sender, message) = {.bytes = 2e9};
  const Simulated s = pairs.simulate(two_halves(4, 10, 1), {0, 1, 2, 3});
  EXPECT_DOUBLE_EQ(end_of(s, 1, message), 0.2);
}

TEST(SimulatorFlows, WhatAFlowLeavesOfItsShareIsNotGivenToOthers) {
  Pairs pairs(2);
  pairs.work(0, message) = {.bytes = 1e9, .most_gb_per_s = 0.25};
  pairs.work(2, message) = {.bytes = 1e9};
  const Simulated s = pairs.simulate(two_halves(4, 10, 1), across(2));
  EXPECT_DOUBLE_EQ(end_of(s, 1, message), 4);
  EXPECT_DOUBLE_EQ(end_of(s, 3, message), 2);
}

TEST(SimulatorFlows, BeforeItsBytesMoveAMessageTakesNoBandwidth) {
  Pairs pairs(2);
  pairs.work(0, message) = {.seconds = 5, .bytes = 1e9};
  pairs.work(2, message) = {.bytes = 2e9};
  const Simulated s = pairs.simulate(two_halves(4, 10, 1), across(2));
  EXPECT_DOUBLE_EQ(end_of(s, 3, message), 2);
  EXPECT_DOUBLE_EQ(end_of(s, 1, message), 6);
}

TEST(SimulatorFlows, AMessageBeginsWhenSenderAndReceiverHaveCome) {
  for (const int late : {0, 1}) {
    Pairs pairs(1);
    pairs.work(late, before) = {.seconds = 3};
    pairs.work(0, message) = {.bytes = 1e9};
    const Simulated s = pairs.simulate(two_halves(2, 10, 1), across(1));
    EXPECT_DOUBLE_EQ(s.timeline_of(late)[message].came, 3);
    EXPECT_DOUBLE_EQ(s.timeline_of(1 - late)[message].came, 0);
    EXPECT_DOUBLE_EQ(begin_of(s, 0, message), 3);
    EXPECT_DOUBLE_EQ(end_of(s, 1, message), 4);
  }
}

TEST(SimulatorFlows, OnOneGpuBytesTakeNoTime) {
  Pairs pairs(1);
  pairs.work(0, message) = {.seconds = 0.5, .bytes = 1e9};
  EXPECT_DOUBLE_EQ(pairs.simulate(two_halves(2, 10, 1), {1, 1}).step_seconds, 0.5);
  pairs.work(0, message).most_gb_per_s = 2;
  EXPECT_DOUBLE_EQ(pairs.simulate(two_halves(2, 10, 1), {1, 1}).step_seconds, 1);
}

TEST(SimulatorFlows, ComputeTakesLongerWhileAMessageGoesOnAtEitherEnd) {
  Pairs pairs(1);
  pairs.work(0, message) = {.seconds = 0.5, .bytes = 0.5e9, .compute_slowdown = 0.25};
  for (const int rank : {0, 1}) pairs.work(rank, beside) = {.seconds = 2};
  pairs.work(0, before) = {.seconds = 1};  // nothing else runs yet
  const Simulated s = pairs.simulate(two_halves(2, 10, 1), across(1));
  EXPECT_DOUBLE_EQ(end_of(s, 0, before), 1);
  // During the second of the message, 0.8 of the sender's two are done.
  EXPECT_DOUBLE_EQ(end_of(s, 0, message), 2);
  EXPECT_DOUBLE_EQ(end_of(s, 0, beside), 2 + 1.2);
  // The receiver had done half of its work before.
  EXPECT_DOUBLE_EQ(end_of(s, 1, beside), 2 + 0.2);
}

TEST(SimulatorFlows, WhatIsFixedOfAMessageTakesLongerWhileEitherEndComputes) {
  Pairs pairs(1);
  pairs.work(0, message) = {.seconds = 3, .bytes = 0.5e9, .slowed_by_compute = 1};
  pairs.work(0, beside) = {.seconds = 1};
  pairs.work(1, beside) = {.seconds = 2};
  const Simulated s = pairs.simulate(two_halves(2, 10, 1), across(1));
  // In two seconds beside the receiver's compute, one of the three is over; bytes are not slowed.
  EXPECT_DOUBLE_EQ(s.step_seconds, 2 + 2 + 0.5);
}

TEST(SimulatorFlows, WhatNobodySendsOrReceivesHereSlowsNothingHere) {
  Pairs pairs(2);
  pairs.work(0, message) = {.seconds = 1, .compute_slowdown = 1};
  for (int rank = 0; rank < 4; ++rank) pairs.work(rank, beside) = {.seconds = 2};
  const Simulated s = pairs.simulate(two_halves(4, 10, 1), across(2));
  EXPECT_DOUBLE_EQ(end_of(s, 0, beside), 2.5);
  EXPECT_DOUBLE_EQ(end_of(s, 2, beside), 2);
}

// The buckets of a data group, reduced beside backward.
class Reduction {
 public:
  explicit Reduction(int data, int tensor = 1) {
    set_.layout = {{Axis::data, data}, {Axis::tensor, tensor}};
    Program program;
    program.streams = {{StreamRole::compute, -1}, {StreamRole::reduce, -1}};
    program.instructions = {
        {.kind = InstructionKind::backward_weight, .stream = 0, .segment = 1},
        {.kind = InstructionKind::collective, .stream = 1, .bucket = 0, .collective = parallel::gradient_sum(), .waits = {0}},
        {.kind = InstructionKind::backward_weight, .stream = 0, .segment = 0},
        {.kind = InstructionKind::gradient_norm, .stream = 0, .waits = {1}}};
    set_.programs = {{program, {}}};
    set_.program_of.assign(static_cast<std::size_t>(set_.layout.ranks()), 0);
  }
  Work& work(int rank, int index) { return works_[{rank, index}]; }
  void all(int index, const Work& work) {
    for (int rank = 0; rank < set_.layout.ranks(); ++rank) works_[{rank, index}] = work;
  }
  Simulated simulate(const topology::Network& network, const std::vector<int>& gpus) {
    return simulate_step(set_, [&](int rank, int index) { return works_[{rank, index}]; }, network, gpus,
                         {.keep_timeline = true});
  }

 private:
  ProgramSet set_;
  std::map<std::pair<int, int>, Work> works_;
};

TEST(SimulatorFlows, ACollectiveWaitsForTheLast) {
  Reduction job(4);
  for (int rank = 0; rank < 4; ++rank) job.work(rank, 0) = {.seconds = 1.0 + rank};
  job.all(1, {.seconds = 0.5, .bytes = 1e9});
  const Simulated s = job.simulate(Rails{.hosts = 1, .per_host = 4, .switch_gb_per_s = 2}.network(), in_order(4));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_DOUBLE_EQ(s.timeline_of(rank)[1].came, 1.0 + rank);
    EXPECT_DOUBLE_EQ(s.timeline_of(rank)[1].begin, 4);
    EXPECT_DOUBLE_EQ(s.timeline_of(rank)[1].end, 5);
  }
  EXPECT_DOUBLE_EQ(s.step_seconds, 5);
}

TEST(SimulatorFlows, TheSlowestMembersNumbersCount) {
  Reduction job(3);
  job.work(0, 1) = {.seconds = 1, .bytes = 1e9, .most_gb_per_s = 2};
  job.work(1, 1) = {.seconds = 3, .bytes = 2e9};
  job.work(2, 1) = {.seconds = 2, .bytes = 4e9, .most_gb_per_s = 4};
  const Simulated s = job.simulate(Rails{.hosts = 1, .per_host = 4, .switch_gb_per_s = 100}.network(), in_order(3));
  EXPECT_DOUBLE_EQ(s.step_seconds, 3 + 2);
}

TEST(SimulatorFlows, HopsOfOneRingShareAChannelThatTheyCross) {
  Reduction job(4);
  job.all(1, {.bytes = 1e9});
  // One switch port for all of them.
  topology::Network hub;
  hub.channels = {{2}};
  hub.host_of = {0, 0, 0, 0};
  topology::Way way;
  way.channels = {0}, way.gb_per_s = 2;
  hub.way = [&](int, int) -> const topology::Way& { return way; };
  EXPECT_DOUBLE_EQ(job.simulate(hub, in_order(4)).step_seconds, 2);
  // Around the two halves only one hop crosses in each direction, in any order of the ranks.
  EXPECT_DOUBLE_EQ(job.simulate(two_halves(4, 10, 1), {0, 2, 1, 3}).step_seconds, 1);
}

TEST(SimulatorFlows, AReductionIsHiddenAsFarAsComputeReaches) {
  Reduction job(2);
  job.all(0, {.seconds = 1});
  job.all(1, {.bytes = 1.5e9});
  job.all(2, {.seconds = 1});
  job.all(3, {.seconds = 0.25});
  const Simulated s = job.simulate(two_halves(2, 10, 1), in_order(2));
  EXPECT_DOUBLE_EQ(s.step_seconds, 2.75);
  const parallel::Ledger ledger = s.ledger(1);
  const parallel::KindTimes& buckets = ledger.of(parallel::CommunicationKind::gradient_buckets);
  EXPECT_NEAR(buckets.exposed_ms, 500, 1e-9);
  EXPECT_NEAR(buckets.hidden_ms(), 1000, 1e-9);
  EXPECT_NEAR(ledger.compute_ms, 2250, 1e-9);
  EXPECT_NEAR(ledger.compute_ms + ledger.exposed_ms() + ledger.bubble_ms + ledger.other_ms, ledger.step_ms, 1e-9);
}

TEST(SimulatorFlows, BesideAReductionComputeIsSlowed) {
  Reduction job(2);
  job.all(1, {.bytes = 1e9, .compute_slowdown = 0.1});
  job.all(2, {.seconds = 1});
  // The reduction takes a second, in which 1 / 1.1 of the segment is done.
  EXPECT_DOUBLE_EQ(job.simulate(two_halves(2, 10, 1), in_order(2)).step_seconds, 1 + (1 - 1 / 1.1));
}

TEST(SimulatorFlows, AGroupOfOneMovesNothing) {
  Reduction job(1);
  job.all(0, {.seconds = 1, .bytes = 1e9});
  job.all(1, {.seconds = 2, .bytes = 1e9, .compute_slowdown = 1});
  job.all(2, {.seconds = 2});
  EXPECT_DOUBLE_EQ(job.simulate(two_halves(2, 10, 1), {0}).step_seconds, 3);
}

TEST(SimulatorFlows, OfARealMachineShareTheLinkBetweenItsSockets) {
  Pairs pairs(2);
  for (const int sender : {0, 2}) pairs.work(sender, message) = {.bytes = 24e9};
  topology::Fabric fabric(test::two_bare_sockets());
  const topology::Network network = topology::network_of(fabric);
  EXPECT_DOUBLE_EQ(pairs.simulate(network, {0, 1, 2, 3}).step_seconds, 2);
  EXPECT_DOUBLE_EQ(pairs.simulate(network, {0, 2, 1, 3}).step_seconds, 6);
  EXPECT_DOUBLE_EQ(pairs.simulate(network, {0, 2, 3, 1}).step_seconds, 3);
}

TEST(SimulatorFlows, AWayMeasuredToBeFasterThanNominalIsThatFast) {
  topology::Graph graph = test::two_bare_sockets();
  graph.pairs.push_back({.from = 0, .to = 2, .gb_per_s = 10, .latency_us = 3});
  topology::Fabric fabric(graph);
  Pairs pairs(1);
  pairs.work(0, message) = {.bytes = 30e9};
  EXPECT_DOUBLE_EQ(pairs.simulate(topology::network_of(fabric), {0, 2}).step_seconds, 3);
}

TEST(SimulatorFlows, BytesThatHaveNoWayAreTheUsersError) {
  Pairs pairs(1);
  pairs.work(0, message) = {.bytes = 1};
  topology::Network nothing = two_halves(2, 0, 0);
  try {
    pairs.simulate(nothing, across(1));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems().at(0).path, "placement");
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 0 on GPU 0, rank 1 on GPU 1"));
  }
  pairs.work(0, message) = {.seconds = 1};
  EXPECT_DOUBLE_EQ(pairs.simulate(nothing, across(1)).step_seconds, 1);
}

TEST(SimulatorFlows, AnswersThatAreNoTimesAreRefused) {
  for (const Work& wrong : {Work{.seconds = -1}, Work{.bytes = NAN}, Work{.seconds = INFINITY}, Work{.compute_slowdown = -0.1},
                            Work{.slowed_by_compute = -0.1}}) {
    Pairs pairs(1);
    pairs.work(0, message) = wrong;
    EXPECT_THROW(pairs.simulate(two_halves(2, 10, 1), across(1)), InternalError);
  }
  Pairs pairs(1);
  EXPECT_THROW(pairs.simulate(two_halves(2, 10, 1), {0, 2}), InternalError);
  EXPECT_THROW(pairs.simulate(two_halves(2, 10, 1), {0}), InternalError);
}

TEST(SimulatorFlows, WhoWaitsForWhomIsNamedWhereProgramsDeadlock) {
  // The receiver takes part in the collective first, the sender sends first.
  ProgramSet set = Pairs(1).set();
  std::vector<parallel::Instruction>& receiver = set.programs[1].program.instructions;
  std::swap(receiver[message], receiver[scalars]);
  receiver[message].waits = {before};
  receiver[scalars].waits = {message};
  try {
    simulate_step(set, [](int, int) { return Work{}; }, two_halves(2, 10, 1), across(1));
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("wait for each other"));
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 0, send_activation, waits for rank 1"));
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1, sum of scalars over the world group, waits for rank 0"));
  }
}

}  // namespace
}  // namespace plait::plan
