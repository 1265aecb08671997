#include "verify/rank_parts.h"

namespace plait::verify {

parallel::RankPlan training_plan(const Config& config, std::int64_t vocab, const launch::RankContext& rank) {
  return parallel::make_rank_plan(config, vocab, parallel::resolve_layout(config.parallel, rank.size), rank.rank,
                                  rank.device.kind);
}

}  // namespace plait::verify
