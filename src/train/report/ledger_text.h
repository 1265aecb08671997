// Ledgers for people, as pure functions, and `bounds` of the configuration on the time that ranks lose of their steps.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/text_table.h"
#include "parallel/ledger.h"

namespace plait::train {

// "exposed 1.3 ms of 54.1 (2.4 %): gradient buckets 1.1, activations 0.2; hidden 21.0; bubble 6.1 (11.3 %), waited for rank
// 2 4.0"
std::string ledger_line(const parallel::Ledger& ledger);

// A short form, for the log of a run: "exposed 2.4 % (gradient buckets), bubble 11.3 %, waited for rank 2". Empty if neither is
// a hundredth of the step.
std::string lost_time_text(const parallel::Ledger& ledger);

// A row per rank, in the order of `ranks`: indices into `ledgers`, which are ordered by rank.
TextTable ledger_table(const std::vector<parallel::Ledger>& ledgers, const std::vector<int>& ranks);
TextTable ledger_table(const std::vector<parallel::Ledger>& ledgers);  // all ranks

// The rank that loses the largest part of its step to communication and waiting.
int worst_rank(const std::vector<parallel::Ledger>& ledgers);

// Tests overlap: compares the time that ranks lost of their steps with `bounds` of the configuration.
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
