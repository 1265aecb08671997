// Properties of every simulated step: the ledgers balance, the critical path has no gaps, and equal ranks are treated alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/error.h"
#include "parallel/collectives.h"
#include "parallel/program/program_timeline.h"
#include "plan/random_work.h"
#include "plan/simulation/simulator.h"
#include "plan/simulation_jobs.h"
#include "plan/simulation_networks.h"

namespace plait::plan {
namespace {

using parallel::Ledger;
using parallel::make_set;
using parallel::ProgramSet;
using parallel::SetSpec;

// A network narrow enough that much is shared.
topology::Network narrow(int ranks) {
  return Rails{.hosts = (ranks + 1) / 2, .per_host = 2, .switch_gb_per_s = 3, .nic_gb_per_s = 1, .spine_gb_per_s = 1.5}
      .network();
}

bool same_ledger(const Ledger& a, const Ledger& b) {
  bool same = a.step_ms == b.step_ms && a.compute_ms == b.compute_ms && a.bubble_ms == b.bubble_ms &&
              a.other_ms == b.other_ms && a.peers.size() == b.peers.size();
  for (const parallel::CommunicationKind kind : parallel::communication_kinds) {
    same = same && a.of(kind).count == b.of(kind).count && a.of(kind).total_ms == b.of(kind).total_ms &&
           a.of(kind).exposed_ms == b.of(kind).exposed_ms;
  }
  for (std::size_t p = 0; same && p < a.peers.size(); ++p) {
    same = a.peers[p].rank == b.peers[p].rank && a.peers[p].late_ms == b.peers[p].late_ms &&
           a.peers[p].wire_ms == b.peers[p].wire_ms;
  }
  return same;
}

void expect_same(const Simulated& a, const Simulated& b) {
  EXPECT_EQ(a.step_seconds, b.step_seconds);
  EXPECT_EQ(a.steps_seconds, b.steps_seconds);
  for (int rank = 0; rank < a.layout.ranks(); ++rank) {
    EXPECT_TRUE(same_ledger(a.ledger(rank), b.ledger(rank))) << rank;
    const auto &one = a.timeline_of(rank), &other = b.timeline_of(rank);
    for (std::size_t n = 0; n < one.size(); ++n) {
      ASSERT_EQ(one[n].reached, other[n].reached) << rank << ", " << n;
      ASSERT_EQ(one[n].came, other[n].came) << rank << ", " << n;
      ASSERT_EQ(one[n].begin, other[n].begin) << rank << ", " << n;
      ASSERT_EQ(one[n].moved, other[n].moved) << rank << ", " << n;
      ASSERT_EQ(one[n].end, other[n].end) << rank << ", " << n;
    }
  }
}

TEST(SimulatedStep, AccountsForAllOfItsTimeOnEveryRank) {
  std::uint32_t seed = 100;
  for (const SetSpec& spec : small_jobs()) {
    SCOPED_TRACE(spec.name());
    const ProgramSet set = make_set(spec);
    const RandomWork work(set, ++seed);
    const Simulated s = simulate_step(set, work, narrow(set.layout.ranks()), shuffled(set.layout.ranks(), seed));
    for (int rank = 0; rank < set.layout.ranks(); ++rank) {
      const Ledger ledger = s.ledger(rank);
      EXPECT_NEAR(ledger.compute_ms + ledger.exposed_ms() + ledger.bubble_ms + ledger.other_ms, ledger.step_ms, 1e-6);
      EXPECT_GE(ledger.compute_ms, 0);
      EXPECT_GE(ledger.bubble_ms, 0);
      // All waits of the compute stream are for communication here, or for batches.
      for (const parallel::CommunicationKind kind : parallel::communication_kinds) {
        EXPECT_GE(ledger.of(kind).exposed_ms, -1e-9) << rank << " " << to_string(kind);
        EXPECT_GE(ledger.of(kind).hidden_ms(), -1e-6) << rank << " " << to_string(kind);
      }
      // Steps are periodic once they have settled, on all ranks.
      EXPECT_TRUE(s.settled);
      EXPECT_NEAR(ledger.step_ms, 1e3 * s.step_seconds, 1e-2 * s.step_seconds) << rank;
      EXPECT_EQ(ledger.of(parallel::CommunicationKind::exchanges).exposed_ms > 0, set.layout.size(Axis::tensor) > 1);
      for (const parallel::PeerTimes& peer : ledger.peers) {
        if (peer.rank < 0) continue;
        EXPECT_EQ(set.layout.coordinate(peer.rank, Axis::data), set.layout.coordinate(rank, Axis::data));
        EXPECT_EQ(set.layout.coordinate(peer.rank, Axis::tensor), set.layout.coordinate(rank, Axis::tensor));
      }
    }
  }
}

TEST(SimulatedStep, HasACriticalPathWithoutGapsThatIsAsLongAsTheStep) {
  std::uint32_t seed = 200;
  for (const SetSpec& spec : small_jobs()) {
    SCOPED_TRACE(spec.name());
    const ProgramSet set = make_set(spec);
    const RandomWork work(set, ++seed);
    const Simulated s =
        simulate_step(set, work, narrow(set.layout.ranks()), shuffled(set.layout.ranks(), seed), {.keep_timeline = true});
    ASSERT_FALSE(s.critical_path.empty());
    EXPECT_EQ(s.critical_path.front().begin, 0);
    EXPECT_NEAR(s.critical_path.back().end, s.step_seconds, 1e-12);
    for (std::size_t i = 0; i < s.critical_path.size(); ++i) {
      const CriticalRun& run = s.critical_path[i];
      EXPECT_LT(run.begin, run.end);
      if (i > 0) {
        EXPECT_EQ(run.begin, s.critical_path[i - 1].end);
        EXPECT_NE(run.cause, StartCause::step_began);
      }
      if (run.step == 0) {
        const InstructionTimes& times = s.timeline_of(run.rank)[static_cast<std::size_t>(run.instruction)];
        EXPECT_EQ(run.begin, std::max(0.0, times.begin));
        EXPECT_EQ(run.end, times.end);
      }
    }
    EXPECT_EQ(s.critical_path.front().cause, StartCause::step_began);
    EXPECT_NEAR(s.critical_sums.total(), s.step_seconds, 1e-9);
    for (const double part : {s.critical_sums.compute, s.critical_sums.slowdown, s.critical_sums.copy, s.critical_sums.latency,
                              s.critical_sums.message, s.critical_sums.collective, s.critical_sums.sharing}) {
      EXPECT_GE(part, -1e-12);
    }
  }
}

TEST(SimulatedStep, SplitsItsCriticalPathByWhatTheTimeWentInto) {
  // Two stages that send to two others through one channel, after a second of compute: 2 s of bytes that would take 1.
  const ProgramSet set = make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 1}, .data = 2, .tied = false, .even = true});
  const auto work_of = [&](int rank, int index) -> Work {
    const parallel::Instruction& i = set.program(rank).at(index);
    if (i.kind == parallel::InstructionKind::forward && i.segment == 1) return {.seconds = 1};
    if (i.kind == parallel::InstructionKind::send_activation) return {.seconds = 0.25, .bytes = 1e9, .compute_slowdown = 0.5};
    if (i.kind == parallel::InstructionKind::backward_input && i.segment == 2) return {.seconds = 3};
    if (reduces_gradients(i)) return {.seconds = 0.5, .bytes = 1e9};
    return {};
  };
  const Simulated s = simulate_step(set, work_of, two_halves(4, 4, 1), in_order(4));
  const CriticalSums& sums = s.critical_sums;
  EXPECT_NEAR(sums.compute, 1 + 3, 1e-9);
  EXPECT_NEAR(sums.message, 1, 1e-9);
  EXPECT_NEAR(sums.sharing, 1, 1e-9);
  EXPECT_NEAR(sums.slowdown, 0, 1e-9);
  EXPECT_NEAR(sums.total(), s.step_seconds, 1e-9);
  const int buckets = static_cast<int>(std::lround((sums.latency - 0.25) / 0.5));
  EXPECT_GT(buckets, 0);
  EXPECT_NEAR(sums.latency, 0.25 + 0.5 * buckets, 1e-9);
  EXPECT_NEAR(sums.collective, 0.25 * buckets, 1e-9) << "within a half there are 4 GB/s";
}

TEST(SimulatedStep, SaysWhyEachPartOfItsCriticalPathBegan) {
  const ProgramSet set = make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 1}, .tied = false, .even = true});
  const auto work_of = [&](int rank, int index) -> Work {
    const parallel::Instruction& i = set.program(rank).at(index);
    if (i.kind == parallel::InstructionKind::forward && i.segment > 0 && i.segment != set.head()) return {.seconds = 1};
    if (i.kind == parallel::InstructionKind::send_activation) return {.seconds = 0.25};
    return {};
  };
  const Simulated s = simulate_step(set, work_of, two_halves(2, 4, 1), in_order(2));
  std::vector<std::string> path;
  for (const CriticalRun& run : s.critical_path) path.push_back(to_string(run, set));
  EXPECT_THAT(path, testing::ElementsAre(
                        testing::StartsWith("0.000 to 1000.000 ms, rank 0: forward micro-batch 0 segment 1, when "),
                        "1000.000 to 2000.000 ms, rank 0: forward micro-batch 0 segment 2, when norm micro-batch 0 segment 2 "
                        "was over",
                        "2000.000 to 2250.000 ms, rank 1: receive_activation micro-batch 0 chunk 0, which rank 0 reached last, "
                        "when forward micro-batch 0 segment 2 was over",
                        "2250.000 to 3250.000 ms, rank 1: forward micro-batch 0 segment 3, when norm micro-batch 0 "
                        "segment 3 was over",
                        "3250.000 to 4250.000 ms, rank 1: forward micro-batch 0 segment 4, when norm micro-batch 0 segment 4 "
                        "was over"));
}

TEST(SimulatedStep, IsTheSameToTheBitWhenItIsRunAgain) {
  const ProgramSet set = make_set(small_jobs()[4]);
  const RandomWork work(set, 7);
  const topology::Network network = narrow(set.layout.ranks());
  const std::vector<int> gpus = shuffled(set.layout.ranks(), 3);
  expect_same(simulate_step(set, work, network, gpus, {.keep_timeline = true}),
              simulate_step(set, work, network, gpus, {.keep_timeline = true}));
}

TEST(SimulatedStep, IsTheSameToTheBitWhetherEqualRanksAreRunOnceOrAll) {
  std::uint32_t seed = 300;
  bool merged_some = false, merged_not_all = false;
  for (SetSpec spec : small_jobs()) {
    spec.data = 4;
    for (const bool in_rank_order : {true, false}) {
      SCOPED_TRACE(spec.name() + (in_rank_order ? ", in order" : ", shuffled"));
      const ProgramSet set = make_set(spec);
      const int ranks = set.layout.ranks();
      const RandomWork work(set, ++seed, true, RandomWork::Alike::program);
      const std::vector<int> gpus = in_rank_order ? in_order(ranks) : shuffled(ranks, seed);
      const Simulated merged = simulate_step(set, work, narrow(ranks), gpus, {.keep_timeline = true});
      const Simulated all = simulate_step(set, work, narrow(ranks), gpus, {.keep_timeline = true, .merge_equal_ranks = false});
      EXPECT_EQ(all.classes(), ranks);
      merged_some = merged_some || merged.classes() < ranks;
      merged_not_all = merged_not_all || merged.classes() > set.layout.size(Axis::pipeline);
      expect_same(merged, all);
      EXPECT_NEAR(merged.critical_sums.total(), all.critical_sums.total(), 1e-12);
    }
  }
  EXPECT_TRUE(merged_some);
  EXPECT_TRUE(merged_not_all) << "what is not alike has to be told apart";
}

TEST(SimulatedStep, IsTheSameToTheBitWhereRanksWithTheSameWorkAreAskedOnce) {
  const ProgramSet set = make_set({.schedule = {ScheduleKind::one_f_one_b, 4, 1, 4}, .data = 4, .tensor = 2});
  const int ranks = set.layout.ranks();
  const RandomWork random(set, 5, true, RandomWork::Alike::program);
  std::set<int> asked;
  const auto work = [&](int rank, int index) {
    asked.insert(rank);
    Work w = random(rank, index);
    if (rank % 2 == 1) w.seconds *= 1.5;  // the second of two tensor ranks
    return w;
  };
  std::vector<int> same_work;
  for (int rank = 0; rank < ranks; ++rank) same_work.push_back(rank % 2);
  const Simulated all = simulate_step(set, work, narrow(ranks), in_order(ranks), {.keep_timeline = true});
  EXPECT_EQ(asked.size(), 32U);
  asked.clear();
  expect_same(simulate_step(set, work, narrow(ranks), in_order(ranks), {.keep_timeline = true, .same_work = same_work}), all);
  EXPECT_EQ(asked.size(), 8U) << "two for each of four programs";
  EXPECT_THROW(simulate_step(set, work, narrow(ranks), in_order(ranks), {.same_work = {0, 1}}), InternalError);
}

TEST(SimulatedStep, IsRunOncePerStageWhereRanksOfAStageAreAlike) {
  const ProgramSet set = make_set({.schedule = {ScheduleKind::one_f_one_b, 4, 1, 4}, .data = 4, .tensor = 2});
  // Where the world's ring has bytes, it takes different ways from the GPUs of one host.
  const RandomWork random(set, 1, true, RandomWork::Alike::program);
  const auto work = [&](int rank, int index) {
    Work w = random(rank, index);
    if (sums_scalars(set.program(rank).at(index))) w.bytes = 0;
    return w;
  };
  EXPECT_EQ(simulate_step(set, work, Rails{.hosts = 16, .per_host = 2}.network(), in_order(32)).classes(), 4);
  // One rank is slower.
  const auto slower = [&](int rank, int index) {
    Work w = work(rank, index);
    if (rank == 5) w.seconds *= 1.5;
    return w;
  };
  const Simulated with_slower = simulate_step(set, slower, Rails{.hosts = 16, .per_host = 2}.network(), in_order(32));
  EXPECT_GT(with_slower.classes(), 8);
  EXPECT_LT(with_slower.classes(), 32);
}

TEST(SimulatedStep, DoesNotChangeWithTheNumbersOfEqualGpus) {
  std::uint32_t seed = 400;
  for (const SetSpec& spec : small_jobs()) {
    SCOPED_TRACE(spec.name());
    const ProgramSet set = make_set(spec);
    const int ranks = set.layout.ranks();
    const RandomWork work(set, ++seed);
    // One switch: all GPUs are equal.
    const topology::Network network = Rails{.hosts = 1, .per_host = ranks, .switch_gb_per_s = 2}.network();
    const Simulated a = simulate_step(set, work, network, in_order(ranks)),
                    b = simulate_step(set, work, network, shuffled(ranks, seed));
    // Rings have another order, which rounds differently at most.
    EXPECT_NEAR(a.step_seconds, b.step_seconds, 1e-9);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_NEAR(a.ledger(rank).exposed_ms(), b.ledger(rank).exposed_ms(), 1e-6);
  }
}

TEST(SimulatedStep, GetsSlowerOnASlowerMachine) {
  const ProgramSet set = make_set(small_jobs()[0]);
  const RandomWork work(set, 5);
  double before = 0;
  for (const double gb_per_s : {8.0, 4.0, 2.0, 1.0, 0.5}) {
    const double step = simulate_step(set, work, two_halves(4, gb_per_s, gb_per_s), in_order(4)).step_seconds;
    EXPECT_GE(step, before);
    before = step;
  }
}

TEST(SimulatedStep, MeansAreOverRanks) {
  const ProgramSet set = make_set(small_jobs()[0]);
  const Simulated s = simulate_step(set, RandomWork(set, 9), narrow(4), in_order(4));
  Ledger mean;
  for (int rank = 0; rank < 4; ++rank)
    mean.compute_ms += s.ledger(rank).compute_ms / 4, mean.bubble_ms += s.bubble_fraction(rank) / 4;
  EXPECT_NEAR(s.mean_ledger().compute_ms, mean.compute_ms, 1e-9);
  EXPECT_NEAR(s.mean_bubble_fraction(), mean.bubble_ms, 1e-12);
  EXPECT_THROW(s.timeline_of(0), std::exception) << "it was not kept";
}

}  // namespace
}  // namespace plait::plan
