// The links of a job and how its collectives travel by them, for start-up, plan.json and benchmarks: the choice for each pair
// of ranks, and the reasons against better ones.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/meeting.h"
#include "comm/p2p/link.h"
#include "parallel/rank_plan.h"

namespace plait::train {

// {"from", "to", "devices": [..], "link", "peer_access", "native_atomics", "performance_rank", "transport", "mover", "bridge",
//  "message_us", "gb_per_s", "better": [{"transport", "reason"}]}; message_us and gb_per_s are of the trial at start-up.
nlohmann::ordered_json to_json(const comm::p2p::LinkReport& report);

// The links of all ranks, in order of (from, to), on rank 0; an empty array elsewhere. Collective. `own`: the links that this
// rank sends on. `topic`: of the meeting, a different one for each call.
nlohmann::ordered_json gather_links(const std::string& topic, const std::vector<comm::p2p::LinkReport>& own,
                                    comm::Meeting& meeting);

// A row per link, and below it the alternatives passed over, each reason once with the pairs it applies to. Lines of up to
// `width` columns, without a newline at the end. Empty without links.
std::string link_table(const nlohmann::ordered_json& links, int width);

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
