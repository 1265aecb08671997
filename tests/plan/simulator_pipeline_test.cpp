// Pipelines with bubbles in closed form, and schedules where the simulator must agree with their own timing.
#include <gtest/gtest.h>

#include <utility>

#include "parallel/collectives.h"
#include "parallel/program_sets.h"
#include "parallel/schedule/schedule_timeline.h"
#include "plan/simulation/simulator.h"
#include "plan/simulation_networks.h"

namespace plait::plan {
namespace {

using parallel::InstructionKind;
using parallel::make_set;
using parallel::ProgramSet;

struct Costs {
  double forward = 1, backward_input = 1, backward_weight = 1;
};

// Each stage has a transformer block with these costs, half of them for each of its segments; embedding and head cost nothing.
Simulated simulate(const ProgramSet& set, const Costs& costs, const Work& message = {}) {
  const auto work_of = [&](int rank, int index) -> Work {
    const parallel::Instruction& i = set.program(rank).at(index);
    if (parallel::is_send(i.kind)) return message;
    if (i.segment <= 0 || i.segment == set.head()) return {};
    switch (i.kind) {
      case InstructionKind::forward: return {.seconds = costs.forward / 2};
      case InstructionKind::backward_input: return {.seconds = costs.backward_input / 2};
      case InstructionKind::backward_weight: return {.seconds = costs.backward_weight / 2};
      default: return {};
    }
  };
  const int ranks = set.layout.ranks();
  return simulate_step(set, work_of, Rails{.hosts = ranks, .per_host = 1}.network(), in_order(ranks));
}

ProgramSet even(ScheduleKind schedule, int ranks, int virtual_stages, int micro_batches) {
  return make_set({.schedule = {schedule, ranks, virtual_stages, micro_batches}, .even = true});
}

TEST(SimulatedPipeline, HasTheBubbleOf1F1B) {
  for (const ScheduleKind schedule : {ScheduleKind::one_f_one_b, ScheduleKind::gpipe}) {
    for (const auto& [p, m] : {std::pair{2, 2}, {2, 8}, {4, 4}, {4, 16}, {8, 8}}) {
      const ProgramSet set = even(schedule, p, 1, m);
      ASSERT_EQ(set.segment_count(), 2 * p + 2) << "embedding, two for each stage, head";
      const Simulated s = simulate(set, {1, 2, 0});
      SCOPED_TRACE(plait::to_string(schedule) + ", pipeline " + std::to_string(p) + ", micro-batches " + std::to_string(m));
      EXPECT_NEAR(s.step_seconds, 3.0 * (m + p - 1), 1e-9);
      for (int rank = 0; rank < p; ++rank) {
        // As a share of compute time: (p - 1) / m (Narayanan et al. 2021, section 2.2).
        EXPECT_NEAR(s.ledger(rank).bubble_ms / s.ledger(rank).compute_ms, (p - 1.0) / m, 1e-9) << rank;
        EXPECT_NEAR(s.bubble_fraction(rank), (p - 1.0) / (m + p - 1), 1e-9) << rank;
        EXPECT_NEAR(s.ledger(rank).exposed_ms() + s.ledger(rank).other_ms, 0, 1e-9) << rank;
      }
      EXPECT_NEAR(s.mean_bubble_fraction(), (p - 1.0) / (m + p - 1), 1e-9);
    }
  }
}

// The last weight part is that of a stage's first segment: nothing is left to send before it.
TEST(SimulatedPipeline, SendsGradientsBeforeTheLastWeightPartSoThatThatIsInNoBubble) {
  for (const ScheduleKind schedule : {ScheduleKind::one_f_one_b, ScheduleKind::gpipe}) {
    for (const auto& [p, m] : {std::pair{2, 4}, {4, 4}, {4, 16}}) {
      const Simulated s = simulate(even(schedule, p, 1, m), {1, 1.25, 0.75});
      EXPECT_NEAR(s.step_seconds, 3.0 * m + (p - 1) * (1 + 1.25 + 0.75 / 2), 1e-9)
          << plait::to_string(schedule) << ", " << p << ", " << m;
    }
  }
}

TEST(SimulatedPipeline, WithVirtualStagesHasABubbleThatMuchSmaller) {
  for (const auto& [p, v, m] : {std::tuple{2, 2, 4}, {4, 2, 8}, {2, 4, 4}}) {
    const ProgramSet set = even(ScheduleKind::interleaved, p, v, m);
    const Simulated s = simulate(set, {1, 2, 0});
    SCOPED_TRACE("pipeline " + std::to_string(p) + ", virtual stages " + std::to_string(v));
    EXPECT_NEAR(s.step_seconds, 3.0 * v * m + 3.0 * (p - 1), 1e-9);
    for (int rank = 0; rank < p; ++rank)
      EXPECT_NEAR(s.ledger(rank).bubble_ms / s.ledger(rank).compute_ms, (p - 1.0) / (v * m), 1e-9);
  }
}

TEST(SimulatedPipeline, WithZeroBubbleSchedulesHasWhatWeightPartsCannotFill) {
  for (const auto& [p, m] : {std::pair{2, 4}, {4, 8}, {4, 12}}) {
    const Simulated s = simulate(even(ScheduleKind::zb_h1, p, 1, m), {1, 1, 1});
    // (p - 1)(forward + input part - weight part): Qi et al. 2023, table 2.
    EXPECT_NEAR(s.step_seconds, 3.0 * m + (p - 1.0), 1e-9) << p << ", " << m;
  }
}

TEST(SimulatedPipeline, TakesAsLongAsItsSchedule) {
  for (const parallel::ScheduleSpec& spec : std::vector<parallel::ScheduleSpec>{{ScheduleKind::one_f_one_b, 4, 1, 6},
                                                                                {ScheduleKind::gpipe, 3, 1, 5},
                                                                                {ScheduleKind::interleaved, 2, 2, 6},
                                                                                {ScheduleKind::zb_h1, 4, 1, 8},
                                                                                {ScheduleKind::zb_v, 2, 2, 6},
                                                                                {ScheduleKind::zb_v, 4, 2, 8}}) {
    for (Costs costs : {Costs{1, 1, 1}, Costs{1, 1.5, 0.5}, Costs{2, 1, 1}}) {
      // A schedule with a whole backward sends only when all of it is done.
      if (!schedule_row(spec.kind).splits_backward) costs.backward_input += std::exchange(costs.backward_weight, 0);
      const ProgramSet set = make_set({.schedule = spec, .even = true});
      const parallel::Timeline timeline = parallel::simulate(
          parallel::make_schedule(spec),
          {.forward = costs.forward, .backward_input = costs.backward_input, .backward_weight = costs.backward_weight});
      EXPECT_NEAR(simulate(set, costs).step_seconds, timeline.end, 1e-9)
          << plait::to_string(spec.kind) << ", " << spec.ranks << ", " << costs.forward << costs.backward_input;
    }
  }
}

TEST(SimulatedPipeline, MessagesOnTheirWayAreExposedAndNotBubble) {
  // The first micro-batch waits for every message on its way forward, the last one on its way back.
  const int p = 4, m = 4;
  const Work message{.seconds = 0.01, .bytes = 50e9 * 0.04};
  const Simulated s = simulate(even(ScheduleKind::gpipe, p, 1, m), {1, 2, 0}, message);
  EXPECT_NEAR(s.step_seconds, 3.0 * (m + p - 1) + 2 * (p - 1) * 0.05, 1e-9);
  double exposed = 0;
  for (int rank = 0; rank < p; ++rank) {
    const parallel::Ledger ledger = s.ledger(rank);
    exposed += ledger.exposed_p2p_ms();
    EXPECT_NEAR(ledger.compute_ms + ledger.exposed_ms() + ledger.bubble_ms + ledger.other_ms, ledger.step_ms, 1e-6);
    EXPECT_NEAR(ledger.compute_ms, 3e3 * m, 1e-6);
  }
  EXPECT_GT(exposed, 0);
}

TEST(SimulatedPipeline, SettlesWhereGathersReachIntoTheNextStep) {
  const ProgramSet set = make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 2}, .data = 2, .zero = 1});
  const auto work_of = [&](int rank, int index) -> Work {
    const parallel::Instruction& i = set.program(rank).at(index);
    if (gathers_weights(i)) return {.seconds = 0.3};
    return {.seconds = parallel::communication_kind(i) ? 0 : 0.1};
  };
  const Simulated s = simulate_step(set, work_of, Rails{.hosts = 1}.network(), in_order(4));
  EXPECT_TRUE(s.settled);
  EXPECT_GT(s.step_seconds, s.steps_seconds.front()) << "the first step has no gathers before it";
  const parallel::KindTimes gathers = s.ledger(0).of(parallel::CommunicationKind::weight_gathers);
  EXPECT_GT(gathers.exposed_ms, 0);
}

}  // namespace
}  // namespace plait::plan
