// What the tensor groups' sums and gathers go by, what they go on behind, and why, for the start-up and plan.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "parallel/rank_plan.h"

namespace plait::train {

// {"by": "links" or "library", "reason", "groups": [[ranks], ..], "links": as gather_links(), "braids": {"of", "reason"}}; null
// without tensor groups. Braids are of what comm.braid names.
// `plan`: of any rank. `links`: those within the groups, none for the library.
nlohmann::ordered_json exchange_report(const parallel::RankPlan& plan, nlohmann::ordered_json links);

// The same in words, with the table of the links, for lines of `width` columns. Empty for null.
std::string exchange_text(const nlohmann::ordered_json& report, int width);

}  // namespace plait::train
