// Formats ledgers for people, as pure functions.
#pragma once

#include <string>
#include <vector>

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

}  // namespace plait::train
