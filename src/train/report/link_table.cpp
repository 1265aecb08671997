#include "train/report/link_table.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <map>

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds gather_timeout{60};

std::string key_of(int rank) { return "links/" + std::to_string(rank); }

std::string device_text(const comm::p2p::EndFacts& end) {
  return end.kind == DeviceKind::host ? "cpu" : fmt::format("{} ({})", to_string(Device{end.kind, end.ordinal}), end.bus_id);
}

std::string access_text(const Json& link) {
  if (link["devices"][0] == "cpu") return "-";
  if (!link["peer_access"].get<bool>()) return "no";
  return link["native_atomics"].get<bool>() ? "yes, atomics" : "yes";
}

}  // namespace

Json to_json(const comm::p2p::LinkReport& report) {
  const comm::p2p::PathFacts &there = report.facts.from_sender, &back = report.facts.from_receiver;
  Json better = Json::array();
  for (const comm::p2p::PassedOver& p : report.better)
    better.push_back({{"transport", to_string(p.transport)}, {"reason", p.reason}});
  return {{"from", report.from},
          {"to", report.to},
          {"devices", {device_text(report.facts.sender), device_text(report.facts.receiver)}},
          {"link", report.facts.link()},
          {"peer_access", there.peer_access && back.peer_access},
          {"native_atomics", there.native_atomics && back.native_atomics},
          {"performance_rank", there.performance_rank},
          {"transport", to_string(report.transport)},
          {"mover", to_string(report.mover)},
          {"bridge", report.bridge},
          {"message_us", report.trial_microseconds},
          {"gb_per_s", report.trial_gb_per_s},
          {"better", std::move(better)}};
}

Json gather_links(const std::vector<comm::p2p::LinkReport>& own, launch::RankContext& rank) {
  Json mine = Json::array();
  for (const comm::p2p::LinkReport& report : own) mine.push_back(to_json(report));
  if (!rank.is_main) {
    rank.rendezvous->set(key_of(rank.rank), mine.dump());
    return Json::array();
  }
  std::vector<Json> links(mine.begin(), mine.end());
  for (int other = 1; other < rank.size; ++other) {
    const Json theirs = Json::parse(rank.rendezvous->get(key_of(other), gather_timeout));
    links.insert(links.end(), theirs.begin(), theirs.end());
  }
  std::sort(links.begin(), links.end(), [](const Json& a, const Json& b) {
    return std::pair(a["from"].get<int>(), a["to"].get<int>()) < std::pair(b["from"].get<int>(), b["to"].get<int>());
  });
  return Json(links);
}

std::string link_table(const Json& links) {
  if (links.empty()) return "";
  std::string text = fmt::format("{:<9} {:<16} {:<13} {:>4}  {:<9} {:<12} {:>11} {:>9}", "link", "path", "peer access", "rank",
                                 "transport", "mover", "message", "rate");
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> reasons;
  for (const Json& link : links) {
    const std::string pair = fmt::format("{} -> {}", link["from"].get<int>(), link["to"].get<int>());
    const bool mailbox = link["transport"] != "nccl";
    text += fmt::format("\n{:<9} {:<16} {:<13} {:>4}  {:<9} {:<12} {:>8.1f} us {:>4.0f} GB/s", pair,
                        link["link"].get<std::string>(), access_text(link), link["performance_rank"].get<int>(),
                        link["transport"].get<std::string>(),
                        mailbox && link["devices"][0] != "cpu" ? link["mover"].get<std::string>() : "-",
                        link["message_us"].get<double>(), link["gb_per_s"].get<double>());
    if (!link["bridge"].get<std::string>().empty()) text += " by " + link["bridge"].get<std::string>();
    for (const Json& passed : link["better"]) {
      reasons[{passed["transport"].get<std::string>(), passed["reason"].get<std::string>()}].push_back(pair);
    }
  }
  for (const auto& [what, pairs] : reasons)
    text += fmt::format("\n  not {} for {}: {}", what.first, fmt::join(pairs, ", "), what.second);
  return text;
}

}  // namespace plait::train
