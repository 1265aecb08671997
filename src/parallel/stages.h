// The cut of the chain of segments into stages.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "model/model_shape.h"
#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// Segments [first, end) of the model.
struct SegmentRange {
  int first = 0, end = 0;
  friend bool operator==(const SegmentRange&, const SegmentRange&) = default;
};

// The cost of each segment, forward and backward together, in floating-point operations per token.
std::vector<double> segment_costs(const model::ModelShape& shape, std::int64_t sequence);

// One range per stage, in order. The split minimises the cost of the most loaded pipeline rank, then the sum of squares over
// ranks, then over stages (so that ties spread evenly). Every stage has at least one segment; the embedding belongs to the
// first stage and the head to the last, and either may be a stage's only segment. The search moves boundaries: with one stage
// per rank it found the best split in all cases tried, with several nearly always one within half a percent of the best.
std::vector<SegmentRange> split_stages(const std::vector<double>& costs, const StageMap& map);

// Splits that were made before. An estimate of thousands of candidates needs few different ones.
class StageSplits {
 public:
  const std::vector<SegmentRange>& split(const std::vector<double>& costs, const StageMap& map);

 private:
  using Key = std::pair<StageMap, std::vector<double>>;
  std::map<Key, std::vector<SegmentRange>> known_;
};

// The split with as many transformer blocks in each stage as parallel.stages says; half a block is an attention or an MLP
// segment.
std::vector<SegmentRange> given_stages(const std::vector<double>& transformer_blocks);
// The reverse: the number of transformer blocks in each stage.
std::vector<double> transformer_blocks(const std::vector<SegmentRange>& stages);

}  // namespace plait::parallel
