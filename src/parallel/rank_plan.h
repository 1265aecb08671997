// The plan of one rank: all that the interpreter needs to run it, as data computed without a device.
#pragma once

#include <cstdint>

#include "core/config.h"
#include "core/device.h"
#include "model/transformer.h"
#include "parallel/flat_layout.h"
#include "parallel/memory_plan.h"
#include "parallel/mesh.h"
#include "parallel/program.h"

namespace plait::parallel {

struct RankPlan {
  Layout layout;
  int rank = 0;
  DeviceKind device_kind = DeviceKind::host;
  model::TransformerOptions model;
  DType gradient_type = DType::f32;
  DType master_type = DType::f32;  // of master weights and moments
  bool deterministic = false;      // the same bits on every run, on GPUs too
  bool sharded = false;            // optimizer state over the data axis (ZeRO-1)
  bool separate_master = true;     // false: the weights are the master weights
  int micro_batches = 1;           // per rank and step
  std::int64_t global_batch = 0;   // sequences per step, all ranks
  std::vector<model::Parameter> parameters;
  FlatLayout flat;
  Program train;
  Program evaluate;
  MemoryPlan memory;

  Coordinates coordinates() const { return layout.coordinates(rank); }
  std::int64_t state_elements() const { return sharded ? flat.shard_elements() : flat.elements(); }
  DType scalar_type() const { return model.compute == DType::f64 ? DType::f64 : DType::f32; }
};

// `vocab`: of the tokenizer. ConfigError when batch sizes, precision and layout do not fit together.
RankPlan make_rank_plan(const Config& config, std::int64_t vocab, const Layout& layout, int rank, DeviceKind device_kind);

// Names of items of RankPlan::memory.
std::string activation_item(int block, int slot, const std::string& tensor);

}  // namespace plait::parallel
