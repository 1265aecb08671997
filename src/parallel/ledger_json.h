// Ledgers as JSON: for reports, and to pass them from rank to rank.
#pragma once

#include <nlohmann/json.hpp>

#include "parallel/ledger.h"

namespace plait::parallel {

// {"step_ms", "compute_ms", "bubble_ms", "other_ms", "unsplit_ms", "kinds": {"gradient_buckets": {"count", "total_ms",
// "hidden_ms", "exposed_ms"}, ...}, "peers": [{"rank", "late_ms", "wire_ms"}]}
void to_json(nlohmann::ordered_json& json, const Ledger& ledger);
void from_json(const nlohmann::ordered_json& json, Ledger& ledger);

}  // namespace plait::parallel
