// How the chain of blocks is cut into stages.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "model/model_shape.h"
#include "parallel/schedule.h"

namespace plait::parallel {

// Blocks [first, end) of the model.
struct BlockRange {
  int first = 0, end = 0;
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

// What a block costs to compute, forward and backward, in floating-point operations per token: embedding, each transformer
// block, head.
std::vector<double> block_costs(const model::ModelShape& shape, std::int64_t sequence);

// One range per stage, in order. The split minimises the cost of the most loaded pipeline rank, then the sum of
// squares over ranks, then over stages (so that ties spread evenly). Every stage has at least one block; the embedding belongs
// to the first stage and the head to the last, which may have no other.
std::vector<BlockRange> split_stages(const std::vector<double>& costs, const StageMap& map);

// Splits that were made before. An estimate of thousands of candidates meets few different ones.
class StageSplits {
 public:
  const std::vector<BlockRange>& split(const std::vector<double>& costs, const StageMap& map);

 private:
  using Key = std::pair<StageMap, std::vector<double>>;
  std::map<Key, std::vector<BlockRange>> known_;
};

// The split that gives each stage as many transformer blocks as `transformer_blocks` says (parallel.stages).
std::vector<BlockRange> given_stages(const std::vector<std::int64_t>& transformer_blocks);

}  // namespace plait::parallel
