// The replaceable parts of a rank in a job under verification.
#pragma once

#include <functional>
#include <memory>

#include "data/dataset.h"
#include "launch/launch.h"
#include "parallel/rank_plan.h"
#include "runtime/rank_groups.h"
#include "train/session.h"

namespace plait::verify {

// The defaults are those of training. Verification compares any other parts with the serial run, which has the same samples and
// otherwise the defaults.
struct RankParts {
  std::function<parallel::RankPlan(const Config&, std::int64_t vocab, const launch::RankContext&)> make_plan =
      train::training_plan;
  std::function<runtime::GroupOptions(const Config&, Device)> group_options = train::group_options;
  // Called once for each model, for the serial run, by the process that starts its ranks.
  std::function<std::shared_ptr<const data::Dataset>(const Config&, const data::Tokenizer&, std::int64_t vocab)> open_dataset =
      [](const Config& config, const data::Tokenizer& tokenizer, std::int64_t vocab) {
        return data::open_dataset(config, tokenizer, vocab);
      };
};

}  // namespace plait::verify
