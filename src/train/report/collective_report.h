// What the collectives of tensor groups and of data-parallel replicas go by, and why, for the start-up and plan.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "parallel/rank_plan.h"

namespace plait::train {

// `plan`: of any rank. `links`: those within the groups, as gather_links(); none for the library.

// {"by": "links" or "library", "reason", "groups": [[ranks], ..], "links", "mover", "push_bytes", "exchanges", "by_kernel",
// "gathers_in_place", "braids": {"of", "reason"}}; null without tensor groups. Of links between GPUs, `mover` is who makes the
// pushes of `push_bytes` to each other rank, the longest: "sm_write" where kernels do of all exchanges, between some of the
// ranks at least; each of the links has its own. `exchanges`: of a step on this rank; `by_kernel`: those of them that kernels
// push. `gathers_in_place`: what is gathered behind a sum arrives where it is read, in all groups; absent where nothing is.
// Braids are of what comm.braid names.
nlohmann::ordered_json exchange_report(const parallel::RankPlan& plan, nlohmann::ordered_json links);
// The same without braids; null without several data-parallel ranks.
nlohmann::ordered_json reduction_report(const parallel::RankPlan& plan, nlohmann::ordered_json links);

// In words, with the table of the links, for lines of `width` columns. Empty for null, and reductions by the library, of which
// the table of paths says all.
std::string exchange_text(const nlohmann::ordered_json& report, int width);
std::string reduction_text(const nlohmann::ordered_json& report, int width);

}  // namespace plait::train
