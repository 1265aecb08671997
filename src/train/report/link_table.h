// The links of a job, for the table at start-up, plan.json and benchmarks: the choice for each pair of ranks, and the reasons
// against better ones.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/meeting.h"
#include "comm/p2p/link.h"

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

}  // namespace plait::train
