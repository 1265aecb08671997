// Reports how the collectives of tensor groups and data-parallel replicas travel, and why, for start-up and plan.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "parallel/rank_plan.h"

namespace plait::train {

// `plan`: any rank's. `links`: those within the groups, from gather_links(); none for the library.

// {"by": "links" or "library", "reason", "groups": [[ranks], ..], "links", "mover", "push_bytes", "exchanges", "by_kernel",
// "gathers_in_place", "braids": {"of", "reason"}}; null without tensor groups. For links between GPUs, `mover` makes the
// longest pushes, of `push_bytes` to each other rank: "sm_write" if kernels make those of all exchanges, at least between some
// ranks; each of the links has its own. `exchanges`: number per step on this rank; `by_kernel`: how many of them kernels push.
// `gathers_in_place`: gathers after a sum arrive where they are read, in all groups; absent if there are none. Braids are those
// of comm.braid.
nlohmann::ordered_json exchange_report(const parallel::RankPlan& plan, nlohmann::ordered_json links);
// The report of reductions, without braids; null without more than one data-parallel rank.
nlohmann::ordered_json reduction_report(const parallel::RankPlan& plan, nlohmann::ordered_json links);

// The report in words, with the table of the links, for lines of `width` columns. Empty for null, and for reductions by the
// library, which the table of paths covers.
std::string exchange_text(const nlohmann::ordered_json& report, int width);
std::string reduction_text(const nlohmann::ordered_json& report, int width);

}  // namespace plait::train
