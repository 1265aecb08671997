// Random numbers for each instruction of each rank; repeated calls give the same ones.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "parallel/ledger.h"
#include "parallel/program/program_set.h"
#include "plan/simulation/work.h"

namespace plait::plan {

class RandomWork {
 public:
  enum class Alike { nobody, program };  // ranks with the same numbers

  RandomWork(const parallel::ProgramSet& set, std::uint32_t seed, bool bytes = true, Alike alike = Alike::nobody)
      : set_(set), seed_(seed), bytes_(bytes), alike_(alike) {}

  Work operator()(int rank, int index) const {
    const int key = alike_ == Alike::program ? set_.program_of[static_cast<std::size_t>(rank)] : rank;
    std::mt19937 random(seed_ + 7919U * static_cast<std::uint32_t>(key) + static_cast<std::uint32_t>(index));
    std::uniform_real_distribution<double> from_0_to_1;
    const parallel::Instruction& i = set_.program(rank).at(index);
    if (parallel::is_receive(i.kind)) return {};
    Work work{.seconds = from_0_to_1(random)};
    if (!bytes_) return work;
    if (parallel::communication_kind(i)) {
      if (from_0_to_1(random) < 0.5) work.seconds = 0;
      if (from_0_to_1(random) < 0.9) work.bytes = 1e9 * from_0_to_1(random);
      if (from_0_to_1(random) < 0.3) work.most_gb_per_s = 0.3 + from_0_to_1(random);
      work.compute_slowdown = from_0_to_1(random) < 0.5 ? 0.3 * from_0_to_1(random) : 0;
      work.slowed_by_compute = from_0_to_1(random) < 0.3 ? 2 * from_0_to_1(random) : 0;
    } else if (parallel::collective_group(i)) {
      work.bytes = 1e8 * from_0_to_1(random);
    }
    return work;
  }

 private:
  const parallel::ProgramSet& set_;
  std::uint32_t seed_;
  bool bytes_;
  Alike alike_;
};

inline std::vector<int> shuffled(int ranks, std::uint32_t seed) {
  std::vector<int> gpus;
  for (int gpu = 0; gpu < ranks; ++gpu) gpus.push_back(gpu);
  std::shuffle(gpus.begin(), gpus.end(), std::mt19937(seed));
  return gpus;
}

}  // namespace plait::plan
