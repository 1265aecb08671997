// Instructions that compute, as one launch each: CUDA graphs.
//
// Launching the kernels of a segment takes the host 20 to 50 us, and those of an exchange as long. If the device needs less, as
// for small micro-batches of segments that tensor-parallel ranks share, it waits for the host. An instruction works on the same
// memory in every micro-batch that has the same slots, so a step has few different ones, and each is captured once. These
// graphs reach no other rank: they serve every layout, and ranks need not agree on them. Results keep their bits.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/stream.h"
#include "parallel/program/program.h"
#include "runtime/cuda_graph.h"

namespace plait::runtime {

// Lists of instructions of segments that do the same work on the same memory, as in micro-batches that have the same slots, in
// the order of the first of each list. The number of lists is the same for any number of micro-batches.
std::vector<std::vector<int>> repeated_instructions(const parallel::Program& program);

class InstructionGraphs {
 public:
  // An instruction that takes the device longer than this hides its launches, some ten, from any host.
  static constexpr double longest_delayed_ms = 0.2;
  // On an H200, 162 graphs took 18 MiB and 529 took 62 MiB. That memory is CUDA's, out of what plans leave free
  // (plan/machine.h). A kind of instruction that would exceed this number is launched kernel by kernel.
  static constexpr std::size_t most_graphs = 1024;

  // `issue(n)` enqueues instruction n on `stream_of(n)`. Captures a few instructions of each kind, times them with what their
  // buffers happen to hold, and captures all of a kind that takes at most longest_delayed_ms. No message may be under way, as
  // CUDA allocates. Blocks. CUDA only.
  InstructionGraphs(const parallel::Program& program, const std::function<StreamRef(int)>& stream_of,
                    const std::function<void(int)>& issue);

  const CudaGraph* of(int instruction) const {  // null: launched kernel by kernel
    const int graph = graph_of_[static_cast<std::size_t>(instruction)];
    return graph < 0 ? nullptr : &graphs_[static_cast<std::size_t>(graph)];
  }
  double share() const { return share_; }  // share of the computing instructions that have a graph

 private:
  std::vector<int> graph_of_;  // by instruction; -1: none
  std::vector<CudaGraph> graphs_;
  double share_ = 0;
};

}  // namespace plait::runtime
