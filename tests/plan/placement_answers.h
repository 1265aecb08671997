// Questions with known answers: the weakest link of the best pipeline, of the best tensor pairs, of both.
#pragma once

#include <algorithm>
#include <limits>

#include "parallel/make_layout.h"
#include "placement_machines.h"
#include "plan/placement/search.h"

namespace plait::plan::test {

// The bandwidth of the weakest pair that the placement uses.
inline double weakest_of_pairs(topology::Fabric& fabric, const PlacementResult& placed) {
  double weakest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i + 1 < placed.gpu_of_rank.size(); i += 2) {
    weakest = std::min(weakest, fabric.way(placed.gpu_of_rank[i], placed.gpu_of_rank[i + 1]).gb_per_s);
    weakest = std::min(weakest, fabric.way(placed.gpu_of_rank[i + 1], placed.gpu_of_rank[i]).gb_per_s);
  }
  return weakest;
}

inline double weakest_of_chain(topology::Fabric& fabric, const PlacementResult& placed, std::size_t stride) {
  double weakest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i + stride < placed.gpu_of_rank.size(); ++i)
    weakest = std::min(weakest, fabric.way(placed.gpu_of_rank[i], placed.gpu_of_rank[i + stride]).gb_per_s);
  return weakest;
}

// A stage on each GPU, only forward messages, so many that the fill hardly counts.
inline PlacementResult pipeline_chain(topology::Fabric& fabric) {
  return place(fabric, traffic(parallel::make_layout(fabric.gpus(), 1, 1), {.forward = 1, .messages = 1e6}));
}

// Disjoint pairs; an odd number of GPUs leaves one out.
inline PlacementResult tensor_pairs(topology::Fabric& fabric) {
  return place(fabric, traffic(parallel::make_layout(1, fabric.gpus() / 2, 2), {.tensor = 1}));
}

// Pairs matter most: their bytes are a thousand times as many.
inline PlacementResult tensor2_pipeline(topology::Fabric& fabric) {
  return place(fabric,
               traffic(parallel::make_layout(fabric.gpus() / 2, 1, 2), {.tensor = 1000, .forward = 1, .messages = 1e6}));
}

}  // namespace plait::plan::test
