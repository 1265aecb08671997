// Tests overlap: compares the time that ranks lost of their steps with `bounds` of the configuration.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/ledger.h"

namespace plait::train {

struct ExceededBound {
  std::string name;  // "exposed_p2p"
  double limit = 0;  // as a fraction of the step
  double share = 0;  // of the rank with the largest loss
  int rank = 0;
  std::string text() const;  // "bounds.exposed_p2p: 5 % allowed, 7.3 % lost on rank 3"
};

void to_json(nlohmann::ordered_json& json, const ExceededBound& bound);  // {"bound", "limit", "share", "rank", "text"}

// `ledgers`: by rank, each the mean of its steps.
std::vector<ExceededBound> exceeded_bounds(const std::vector<parallel::Ledger>& ledgers, const BoundsConfig& bounds);

}  // namespace plait::train
