// The growth of simulation time with the number of ranks, 64 to 16,384, a line each; scripts/draw-growth draws it.
//
//
// Usage: simulation_growth alike|different     alike: all ranks of a stage take equally long
#include <cstdio>
#include <string_view>

#include "large_simulation.h"
#include "parallel/make_layout.h"

int main(int argc, char** argv) {
  const std::string_view ranks = argc == 2 ? argv[1] : "";
  if (ranks != "alike" && ranks != "different") {
    std::fputs("usage: simulation_growth alike|different\n", stderr);
    return 2;
  }
  const bool differs = ranks == "different";
  // Sizes ascend, so that the peak memory so far is that of the last one.
  for (int data = 1; data <= 256; data *= 2) {
    const plait::parallel::Layout layout = plait::parallel::make_layout(8, data, 8);
    const plait::plan::test::Measured measured = plait::plan::test::simulate(layout, 32, differs, true);
    if ((measured.simulated.classes() == layout.ranks()) != differs) {
      std::fputs("simulation_growth: ranks were merged that differ, or kept apart that do not\n", stderr);
      return 1;
    }
  }
}
