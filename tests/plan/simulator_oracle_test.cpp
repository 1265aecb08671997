// The simulator against two other models: the untimed proof, and the fluid model in small time steps.
#include <gtest/gtest.h>

#include "parallel/program/program_timeline.h"
#include "plan/fluid_oracle.h"
#include "plan/random_work.h"
#include "plan/simulation/simulator.h"
#include "plan/simulation_jobs.h"
#include "plan/simulation_networks.h"

namespace plait::plan {
namespace {

using parallel::ProgramSet;
using parallel::SetSpec;

TEST(SimulatorOracle, RunsInTheTimesOfTheUntimedProofWhereNothingIsShared) {
  const topology::Network network = Rails{.hosts = 4}.network();
  std::vector<ProgramSet> sets;
  for (const SetSpec& spec : small_jobs()) {
    for (const bool training : {true, false}) sets.push_back(make_set(spec, training));
  }
  for (const ProgramSet& set : sets) {
    SCOPED_TRACE(set.layout.to_string() + (set.training ? ", training" : ", evaluation"));
    const WorkOf work = RandomWork(set, 1, false);
    const SimulationOptions options{.steps = 3, .most_steps = 3, .keep_timeline = true};
    const Simulated simulated = simulate_step(set, work, network, in_order(set.layout.ranks()), options);
    const parallel::ProgramTimeline proof =
        parallel::simulate(set, 4, [&](int rank, int index) { return work(rank, index).seconds; });
    double origin = 0;
    for (int rank = 0; rank < set.layout.ranks(); ++rank) {
      const parallel::Program& program = set.program(rank);
      const std::size_t count = program.instructions.size();
      for (std::size_t n = 0; n < count; ++n) {
        if (program.stream_of(program.instructions[n]).role != parallel::StreamRole::compute) continue;
        origin = std::max(origin, proof.ranks[static_cast<std::size_t>(rank)][count + n]->end);
      }
    }
    for (int rank = 0; rank < set.layout.ranks(); ++rank) {
      const std::size_t count = set.program(rank).instructions.size();
      const auto& times = simulated.timeline_of(rank);
      for (std::size_t n = 0; n < count; ++n) {
        const auto& expected = proof.ranks[static_cast<std::size_t>(rank)][2 * count + n];
        ASSERT_NEAR(times[n].begin, expected->begin - origin, 1e-9)
            << rank << ", " << to_string(set.program(rank).instructions[n]);
        ASSERT_NEAR(times[n].end, expected->end - origin, 1e-9) << rank << ", " << to_string(set.program(rank).instructions[n]);
      }
    }
  }
}

TEST(SimulatorOracle, RunsInTheTimesOfTheFluidModel) {
  std::uint32_t seed = 0;
  for (const SetSpec& spec : small_jobs()) {
    const ProgramSet set = make_set(spec);
    const int ranks = set.layout.ranks();
    const std::vector<topology::Network> networks = {
        Rails{.hosts = (ranks + 1) / 2, .per_host = 2, .switch_gb_per_s = 3, .nic_gb_per_s = 1, .spine_gb_per_s = 1.5}
            .network(),
        two_halves(ranks, 2, 1)};
    for (const topology::Network& network : networks) {
      SCOPED_TRACE(spec.name() + ", seed " + std::to_string(++seed));
      const WorkOf work = RandomWork(set, seed, true);
      const std::vector<int> gpus = shuffled(ranks, seed);
      constexpr int steps = 2;
      const Simulated simulated =
          simulate_step(set, work, network, gpus, {.steps = steps, .most_steps = steps, .keep_timeline = true});
      // Another step follows the last one.
      FluidOracle oracle(set, work, network, gpus, steps + 1);
      oracle.run(0.2);
      double origin = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        for (int n = 0; n < static_cast<int>(set.program(rank).instructions.size()); ++n) {
          if (set.program(rank).stream_of(set.program(rank).at(n)).role == parallel::StreamRole::compute)
            origin = std::max(origin, oracle.of(rank, 0, n).end);
        }
      }
      for (int rank = 0; rank < ranks; ++rank) {
        const auto& times = simulated.timeline_of(rank);
        for (int n = 0; n < static_cast<int>(times.size()); ++n) {
          const FluidOracle::Run& expected = oracle.of(rank, steps - 1, n);
          const InstructionTimes& actual = times[static_cast<std::size_t>(n)];
          const std::string what = "rank " + std::to_string(rank) + ", " + to_string(set.program(rank).at(n));
          ASSERT_NEAR(actual.came, expected.came - origin, 1e-8) << what;
          ASSERT_NEAR(actual.begin, expected.begin - origin, 1e-8) << what;
          ASSERT_NEAR(actual.moved, expected.moved - origin, 1e-8) << what;
          ASSERT_NEAR(actual.end, expected.end - origin, 1e-8) << what;
        }
      }
    }
  }
}

}  // namespace
}  // namespace plait::plan
