// What connects the ranks of a job, and by which ways its communicators and links go, for the table at start-up and plan.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/meeting.h"
#include "runtime/group_paths.h"

namespace plait::train {

// On rank 0; null elsewhere. Collective over `meeting`, of all ranks. `own`: paths_of() this rank.
// {"hosts": [{"host", "ranks": [..]}],
//  "peers": [{"from", "to", "link", "peer_access", "reason": why not, if it is known}]  of every two ranks of one host; where
//            they are CPUs, all joined alike, one row with "every_two_of": [..] in place of "from" and "to"
//  "groups": [{"group", "ranks": [..], "by", "algorithms": [..], "channels", "unknown": why, if the ways are not known
//              "ways": [{"carrier", "via", "channels", "pairs": [[from, to], ..]}]}]}  communicators and links, as paths.h
//              says; "pairs": "all" where the ranks are CPUs, and every two go this way
nlohmann::ordered_json gather_paths(const std::vector<runtime::GroupPaths>& own, const comm::p2p::JobFacts& facts,
                                    comm::Meeting& meeting);

// At most 80 columns. What is alike shares a line: hosts, and groups that are connected alike. Empty for null.
std::string path_table(const nlohmann::ordered_json& paths);

}  // namespace plait::train
