// The connections between the ranks of a job, and the ways of its communicators and links, for the table at start-up and
// plan.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/meeting.h"
#include "runtime/group_paths.h"

namespace plait::train {

// On rank 0; null elsewhere. Collective over `meeting`, which includes all ranks. `own`: paths_of() this rank.
// {"hosts": [{"host", "ranks": [..]}],
//  "peers": [{"from", "to", "link", "peer_access", "reason": why not, if it is known}]  for every two ranks of one host; if
//            they are CPUs, all joined alike, one row with "every_two_of": [..] instead of "from" and "to"
//  "groups": [{"group", "ranks": [..], "by", "algorithms": [..], "channels", "unknown": why, if the ways are not known
//              "ways": [{"carrier", "via", "channels", "pairs": [[from, to], ..]}]}]}  communicators and links, as in
//              communicator.h; "pairs": "all" if the ranks are CPUs, and every two use this way
nlohmann::ordered_json gather_paths(const std::vector<runtime::GroupPaths>& own, const comm::p2p::JobFacts& facts,
                                    comm::Meeting& meeting);

// At most 80 columns. Equal entries share a line: hosts, and groups with equal connections. Empty for null.
std::string path_table(const nlohmann::ordered_json& paths);

}  // namespace plait::train
