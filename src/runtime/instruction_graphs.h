// Instructions that compute, as one launch each: CUDA graphs.
//
// To launch the kernels of a segment takes the host 20 to 50 us, and those of an exchange as long. Where the device needs less,
// as for small micro-batches of segments that tensor-parallel ranks share, it waits for the host. An instruction works on the
// same memory in every micro-batch that has the same slots, so a step has few different ones, and each is captured once. They
// reach no other rank: they serve every layout, and ranks need not agree on them. Results keep their bits.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/stream.h"
#include "parallel/program/program.h"
#include "runtime/cuda_graph.h"

namespace plait::runtime {

// Instructions of segments that do the same on the same memory, as in micro-batches that have the same slots: a list for each
// work, in the order of their first. There are as many lists for any number of micro-batches.
std::vector<std::vector<int>> repeated_instructions(const parallel::Program& program);

class InstructionGraphs {
 public:
  // What takes the device longer than this hides its launches, some ten, from any host.
  static constexpr double longest_delayed_ms = 0.2;
  // On an H200 162 of them took 18 MiB and 529 took 62, which is CUDA's: of what plans leave free (plan/machine.h). A kind
  // that would make them more is launched kernel by kernel.
  static constexpr std::size_t most_graphs = 1024;

  // `issue(n)` enqueues instruction n on `stream_of(n)`. Captures a few of each kind, times them with what their buffers happen
  // to hold, and captures all of a kind that takes at most longest_delayed_ms. No message may be under way, as CUDA
  // allocates. Blocks. CUDA only.
  InstructionGraphs(const parallel::Program& program, const std::function<StreamRef(int)>& stream_of,
                    const std::function<void(int)>& issue);

  const CudaGraph* of(int instruction) const {  // none: kernel by kernel
    const int graph = graph_of_[static_cast<std::size_t>(instruction)];
    return graph < 0 ? nullptr : &graphs_[static_cast<std::size_t>(graph)];
  }
  double share() const { return share_; }  // of the instructions that compute

 private:
  std::vector<int> graph_of_;  // by instruction; -1: none
  std::vector<CudaGraph> graphs_;
  double share_ = 0;
};

}  // namespace plait::runtime
