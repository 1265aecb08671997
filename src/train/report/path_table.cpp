#include "train/report/path_table.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "comm/p2p/choice.h"
#include "core/limits.h"

namespace plait::comm {

void declare(auto& field, Of<PairPath> auto& path) {
  constexpr record::Whole count = record::whole(0, limits::ranks.most);
  field("from", path.from, count);
  field("to", path.to, count);
  field("carrier", path.carrier);
  field("via", path.via, ToldText());
  field("channels", path.channels, count);
}

}  // namespace plait::comm

namespace plait::runtime {

void declare(auto& field, Of<GroupPaths> auto& group) {
  constexpr record::Whole count = record::whole(0, limits::ranks.most);
  field("name", group.name);
  field("members", group.members, record::at_most(limits::ranks.most, count));
  field("by", group.paths.by, comm::ToldText());
  field("pairs", group.paths.pairs, record::at_most(limits::ranks.most));
  field("algorithms", group.paths.algorithms, record::at_most(16, comm::ToldText()));
  field("channels", group.paths.channels, count);
  field("unknown", group.paths.unknown, comm::ToldText());
}

}  // namespace plait::runtime

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;
using runtime::GroupPaths;

constexpr int matrix_columns = 12;  // that fit into a line

Json hosts_of(const comm::p2p::JobFacts& facts) {
  Json hosts = Json::array();
  std::map<std::string, std::size_t> known;
  for (int rank = 0; rank < facts.ranks(); ++rank) {
    const std::string& host = facts.end(rank).process.host;
    const auto [place, is_new] = known.emplace(host, hosts.size());
    if (is_new) hosts.push_back({{"host", host}, {"ranks", Json::array()}});
    hosts[place->second]["ranks"].push_back(rank);
  }
  return hosts;
}

// Ranks on CPUs may be many, and their connections are usually all alike: then they are listed once, not for every two.
bool are_cpus(const std::vector<int>& ranks, const comm::p2p::JobFacts& facts) {
  return std::ranges::all_of(ranks, [&](int rank) { return facts.end(rank).kind == DeviceKind::host; });
}

Json peers_of(const comm::p2p::JobFacts& facts, const Json& hosts) {
  Json peers = Json::array();
  for (const Json& host : hosts) {
    const auto ranks = host["ranks"].get<std::vector<int>>();
    std::vector<std::pair<Json, Json>> rows;  // pairs of ranks, and the connection between them
    for (const int from : ranks) {
      for (const int to : ranks) {
        if (from == to) continue;
        const comm::p2p::PairFacts pair = facts.pair(from, to);
        rows.emplace_back(Json{{"from", from}, {"to", to}}, Json{{"link", pair.link()}, {"peer_access", pair.peer_access()}});
        if (!pair.peer_access()) rows.back().second["reason"] = obstacle_to_peer_access(pair);
      }
    }
    const auto is_as_first = [&](const auto& row) { return row.second == rows.front().second; };
    if (!rows.empty() && are_cpus(ranks, facts) && std::ranges::all_of(rows, is_as_first)) {
      rows.resize(1);
      rows.front().first = Json{{"every_two_of", ranks}};
    }
    for (auto& [who, what] : rows) {
      who.update(what);
      peers.push_back(std::move(who));
    }
  }
  return peers;
}

Json document_of(const GroupPaths& group, const comm::p2p::JobFacts& facts) {
  Json json{{"group", group.name},
            {"ranks", group.members},
            {"by", group.paths.by},
            {"algorithms", group.paths.algorithms},
            {"channels", group.paths.channels}};
  if (!group.paths.unknown.empty()) json["unknown"] = group.paths.unknown;
  std::map<std::tuple<comm::Carrier, std::string, int>, Json> ways;
  for (const comm::PairPath& path : group.paths.pairs)
    ways[{path.carrier, path.via, path.channels}].push_back({path.from, path.to});
  json["ways"] = Json::array();
  const std::size_t members = group.members.size();
  for (auto& [way, pairs] : ways) {
    if (pairs.size() == members * (members - 1) && are_cpus(group.members, facts)) pairs = "all";
    json["ways"].push_back({{"carrier", to_string(std::get<0>(way))},
                            {"via", std::get<1>(way)},
                            {"channels", std::get<2>(way)},
                            {"pairs", pairs}});
  }
  return json;
}

// Merges the knowledge of a group's ranks.
void add(GroupPaths& all, const GroupPaths& more) {
  all.paths.pairs.insert(all.paths.pairs.end(), more.paths.pairs.begin(), more.paths.pairs.end());
  all.paths.channels = std::max(all.paths.channels, more.paths.channels);
  for (const std::string& name : more.paths.algorithms) {
    if (std::find(all.paths.algorithms.begin(), all.paths.algorithms.end(), name) == all.paths.algorithms.end())
      all.paths.algorithms.push_back(name);
  }
  if (all.paths.unknown.empty()) all.paths.unknown = more.paths.unknown;
}

std::string cell_of(const Json& peer) {
  std::string link = peer["link"].get<std::string>();
  link = link.substr(0, link.find(' '));  // "NV18 (switch)"
  return link + (peer["peer_access"].get<bool>() ? "" : "!");
}

// The peers of one host, by their positions on it.
class HostMatrix {
 public:
  HostMatrix(const Json& host, const std::map<std::pair<int, int>, const Json*>& peers)
      : ranks_(host["ranks"].get<std::vector<int>>()) {
    for (const int from : ranks_) {
      for (const int to : ranks_) {
        const Json* const peer = from == to ? nullptr : peers.at({from, to});
        cells_.push_back(peer ? cell_of(*peer) : "-");
        if (!peer) continue;
        kinds_.insert({(*peer)["link"].get<std::string>(), (*peer)["peer_access"].get<bool>()});
        if (peer->contains("reason")) reasons_.insert((*peer)["reason"].get<std::string>());
      }
    }
  }

  const std::vector<std::string>& cells() const { return cells_; }
  std::string text(std::size_t alike) const {
    std::string head =
        fmt::format("ranks {} of {}", ranks_text(ranks_), alike == 1 ? "a host" : fmt::format("each of {} hosts alike", alike));
    if (ranks_.size() == 1) return head + ": alone\n";
    if (kinds_.size() == 1) {
      const auto& [link, access] = *kinds_.begin();
      return fmt::format("{}: every two {}, {}\n", head, link, access ? "peer access" : "no peer access") + reasons();
    }
    head += ": ! is without peer access\n";
    for (std::size_t first = 0; first < ranks_.size(); first += matrix_columns) {
      const std::size_t end = std::min(ranks_.size(), first + matrix_columns);
      head += "     ";
      for (std::size_t to = first; to < end; ++to) head += fmt::format(" {:>5}", ranks_[to]);
      head += "\n";
      for (std::size_t from = 0; from < ranks_.size(); ++from) {
        head += fmt::format("{:>5}", ranks_[from]);
        for (std::size_t to = first; to < end; ++to) head += fmt::format(" {:>5}", cells_[from * ranks_.size() + to]);
        head += "\n";
      }
    }
    return head + reasons();
  }

  static std::string ranks_text(const std::vector<int>& ranks) {
    const bool run = ranks.size() > 2 && ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1 &&
                     std::is_sorted(ranks.begin(), ranks.end());
    return run ? fmt::format("{}-{}", ranks.front(), ranks.back()) : fmt::format("{}", fmt::join(ranks, " "));
  }

 private:
  // The first reasons; plan.json has all of them at length.
  std::string reasons() const {
    if (reasons_.empty()) return "";
    const std::string more = reasons_.size() > 1 ? fmt::format(" (and {} more in plan.json)", reasons_.size() - 1) : "";
    return "  " + *reasons_.begin() + more + "\n";
  }

  std::vector<int> ranks_;
  std::vector<std::string> cells_;
  std::set<std::pair<std::string, bool>> kinds_;
  std::set<std::string> reasons_;
};

std::string peers_text(const Json& paths) {
  std::map<std::pair<int, int>, const Json*> peers;
  for (const Json& peer : paths["peers"]) {
    const bool of_many = peer.contains("every_two_of");
    const auto from = of_many ? peer["every_two_of"].get<std::vector<int>>() : std::vector{peer["from"].get<int>()};
    for (const int a : from) {
      for (const int b : of_many ? from : std::vector{peer["to"].get<int>()}) peers[{a, b}] = &peer;
    }
  }
  std::vector<HostMatrix> shown;
  std::vector<std::size_t> alike;
  for (const Json& host : paths["hosts"]) {
    HostMatrix matrix(host, peers);
    const auto same =
        std::find_if(shown.begin(), shown.end(), [&](const HostMatrix& m) { return m.cells() == matrix.cells(); });
    if (same != shown.end()) {
      ++alike[static_cast<std::size_t>(same - shown.begin())];
    } else {
      shown.push_back(std::move(matrix));
      alike.push_back(1);
    }
  }
  std::string text;
  for (std::size_t n = 0; n < shown.size(); ++n) text += shown[n].text(alike[n]);
  return text;
}

// "P2P/CUMEM/read" or, if pairs use different ways, "NET/IB/GDRDMA", "P2P/CUMEM": a line each.
std::vector<std::string> ways_of(const Json& group) {
  std::vector<std::string> ways;
  for (const Json& way : group["ways"]) {
    const std::string via = way["via"].get<std::string>();
    if (std::find(ways.begin(), ways.end(), via) == ways.end()) ways.push_back(via);
  }
  if (group.contains("unknown")) ways.emplace_back("not known");
  return ways;
}

std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

std::string groups_text(const Json& paths) {
  // Groups whose shown parts are equal.
  struct Alike {
    const Json* first;
    std::size_t groups = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, Alike> rows;
  std::set<std::string> reasons;
  for (const Json& group : paths["groups"]) {
    const Json key{group["group"], group["ranks"].size(), group["by"], group["algorithms"], group["channels"], ways_of(group)};
    const auto [row, is_new] = rows.emplace(key.dump(), Alike{&group, 0});
    if (is_new) order.push_back(row->first);
    ++row->second.groups;
    if (group.contains("unknown")) reasons.insert(group["unknown"].get<std::string>());
  }
  constexpr const char* line = "{:<11} {:<13} {:<18} {:<11} {:<14} {:>8}\n";
  std::string text = fmt::format(fmt::runtime(line), "group", "ranks", "goes by", "of", "connects", "channels");
  for (const std::string& key : order) {
    const Alike& row = rows.at(key);
    const Json& group = *row.first;
    const auto ranks = group["ranks"].get<std::vector<int>>();
    const bool is_link = group["by"] == "link" || group["group"] == "messages";
    const std::string who = row.groups > 1 ? fmt::format("{} {} {}", row.groups, is_link ? "links" : "groups of",
                                                         is_link ? "" : fmt::format("{}", ranks.size()))
                            : is_link ? fmt::format("{} -> {}", ranks.front(), ranks.back())
                                           : HostMatrix::ranks_text(ranks);
    const auto algorithms = group["algorithms"].get<std::vector<std::string>>();
    const std::vector<std::string> ways = ways_of(group);
    const int channels = group["channels"].get<int>();
    for (std::size_t n = 0; n < std::max<std::size_t>(1, ways.size()); ++n) {
      const bool first = n == 0;
      text +=
          fmt::format(fmt::runtime(line), first ? cut(group["group"].get<std::string>(), 11) : "", first ? cut(who, 13) : "",
                      ways.empty() ? "-" : cut(ways[n], 18), first ? cut(group["by"].get<std::string>(), 11) : "",
                      !first               ? ""
                      : algorithms.empty() ? "-"
                                           : cut(fmt::format("{}", fmt::join(algorithms, ",")), 14),
                      !first          ? ""
                      : channels == 0 ? "-"
                                      : std::to_string(channels));
    }
  }
  for (const std::string& reason : reasons) text += "  not known: " + reason + "\n";
  return text;
}

}  // namespace

Json gather_paths(const std::vector<GroupPaths>& own, const comm::p2p::JobFacts& facts, comm::Meeting& meeting) {
  const std::vector<std::vector<GroupPaths>> told = meeting.gather_on(0, "paths", own);
  if (meeting.rank() != 0) return nullptr;
  std::vector<GroupPaths> groups;
  std::map<std::pair<std::string, std::vector<int>>, std::size_t> known;
  for (const std::vector<GroupPaths>& of_rank : told) {
    for (const GroupPaths& one : of_rank) {
      const auto [place, is_new] = known.emplace(std::pair(one.name, one.members), groups.size());
      is_new ? groups.push_back(one) : add(groups[place->second], one);
    }
  }
  Json list = Json::array();
  for (const GroupPaths& group : groups) list.push_back(document_of(group, facts));
  const Json hosts = hosts_of(facts);
  return {{"hosts", hosts}, {"peers", peers_of(facts, hosts)}, {"groups", std::move(list)}};
}

std::string path_table(const Json& paths) {
  if (paths.is_null()) return "";
  std::string text = peers_text(paths) + groups_text(paths);
  text.pop_back();
  return text;
}

}  // namespace plait::train
