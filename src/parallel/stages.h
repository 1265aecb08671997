// How the chain of segments is cut into stages.
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

// What each segment costs to compute, forward and backward, in floating-point operations per token.
std::vector<double> segment_costs(const model::ModelShape& shape, std::int64_t sequence);

// One range per stage, in order. The split minimises the cost of the most loaded pipeline rank, then the sum of
// squares over ranks, then over stages (so that ties spread evenly). Every stage has at least one segment; the embedding
// belongs to the first stage and the head to the last, which may have no other. It is searched for by moving boundaries: with
// one stage per rank it is the best in all cases tried, with several nearly always within half a percent of the best.
std::vector<SegmentRange> split_stages(const std::vector<double>& costs, const StageMap& map);

// Splits that were made before. An estimate of thousands of candidates meets few different ones.
class StageSplits {
 public:
  const std::vector<SegmentRange>& split(const std::vector<double>& costs, const StageMap& map);

 private:
  using Key = std::pair<StageMap, std::vector<double>>;
  std::map<Key, std::vector<SegmentRange>> known_;
};

// The split that gives each stage as many transformer blocks as parallel.stages says: a half is an attention or an MLP segment.
std::vector<SegmentRange> given_stages(const std::vector<double>& transformer_blocks);
// The reverse.
std::vector<double> transformer_blocks(const std::vector<SegmentRange>& stages);

}  // namespace plait::parallel
