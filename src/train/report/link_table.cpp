#include "train/report/link_table.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/limits.h"
#include "core/terminal.h"
#include "core/text_table.h"

namespace plait::comm::p2p {

void declare(auto& field, Of<PassedOver> auto& passed) {
  field("transport", passed.transport);
  field("reason", passed.reason, record::lines(1 << 16));
}

}  // namespace plait::comm::p2p

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

// A link as another rank tells of it.
struct ToldLink {
  int from = 0, to = 0;
  std::vector<std::string> devices;  // two
  std::string link;
  bool peer_access = false, native_atomics = false;
  int performance_rank = 0;
  std::string transport, mover, bridge;
  double message_us = 0, gb_per_s = 0;
  std::vector<comm::p2p::PassedOver> better;
};

void declare(auto& field, Of<ToldLink> auto& link) {
  field("from", link.from, record::whole(0, limits::ranks.most));
  field("to", link.to, record::whole(0, limits::ranks.most));
  field("devices", link.devices, record::at_most(2));
  field.check(link.devices.size() == 2, "devices", "must be two");
  field("link", link.link);
  field("peer_access", link.peer_access);
  field("native_atomics", link.native_atomics);
  field("performance_rank", link.performance_rank, record::whole(0, std::numeric_limits<int>::max()));
  field("transport", link.transport);
  field("mover", link.mover);
  field("bridge", link.bridge);
  field("message_us", link.message_us);
  field("gb_per_s", link.gb_per_s);
  field("better", link.better, record::at_most(64));
}

std::string device_text(const comm::p2p::EndFacts& end) {
  return end.kind == DeviceKind::host ? "cpu" : fmt::format("{} ({})", to_string(Device{end.kind, end.ordinal}), end.bus_id);
}

std::string access_text(const Json& link) {
  if (link["devices"][0] == "cpu") return "-";
  if (!link["peer_access"].get<bool>()) return "no";
  return link["native_atomics"].get<bool>() ? "yes, atomics" : "yes";
}

ToldLink told(const comm::p2p::LinkReport& report) {
  const comm::p2p::PathFacts &there = report.facts.from_sender, &back = report.facts.from_receiver;
  return {.from = report.from,
          .to = report.to,
          .devices = {device_text(report.facts.sender), device_text(report.facts.receiver)},
          .link = report.facts.link(),
          .peer_access = report.facts.peer_access(),
          .native_atomics = there.native_atomics && back.native_atomics,
          .performance_rank = there.performance_rank,
          .transport = to_string(report.transport),
          .mover = to_string(report.mover),
          .bridge = report.bridge,
          .message_us = report.trial_microseconds,
          .gb_per_s = report.trial_gb_per_s,
          .better = report.better};
}

}  // namespace

Json to_json(const comm::p2p::LinkReport& report) { return record_json(told(report)); }

Json gather_links(const std::string& topic, const std::vector<comm::p2p::LinkReport>& own, comm::Meeting& meeting) {
  std::vector<ToldLink> mine;
  for (const comm::p2p::LinkReport& report : own) mine.push_back(told(report));
  std::vector<Json> links;
  for (const std::vector<ToldLink>& of_rank : meeting.gather_on(0, topic, mine)) {
    for (const ToldLink& link : of_rank) links.push_back(record_json(link));
  }
  std::sort(links.begin(), links.end(), [](const Json& a, const Json& b) {
    return std::pair(a["from"].get<int>(), a["to"].get<int>()) < std::pair(b["from"].get<int>(), b["to"].get<int>());
  });
  return Json(links);
}

std::string link_table(const Json& links, int width) {
  if (links.empty()) return "";
  TextTable table({{"link", Align::left},
                   {"path", Align::left},
                   {"peer access", Align::left},
                   {"rank"},
                   {"transport", Align::left},
                   {"mover", Align::left},
                   {"message"},
                   {"rate"},
                   {"", Align::left}});
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> reasons;
  for (const Json& link : links) {
    const std::string pair = fmt::format("{} -> {}", link["from"].get<int>(), link["to"].get<int>());
    const bool has_mover = link["transport"] != "nccl" && link["devices"][0] != "cpu";
    const auto bridge = link["bridge"].get<std::string>();
    table.add({pair, link["link"].get<std::string>(), access_text(link), std::to_string(link["performance_rank"].get<int>()),
               link["transport"].get<std::string>(), has_mover ? link["mover"].get<std::string>() : "-",
               fmt::format("{:.1f} us", link["message_us"].get<double>()),
               fmt::format("{:.0f} GB/s", link["gb_per_s"].get<double>()), bridge.empty() ? "" : "by " + bridge});
    for (const Json& passed : link["better"]) {
      reasons[{passed["transport"].get<std::string>(), passed["reason"].get<std::string>()}].push_back(pair);
    }
  }
  std::string text = table.text(width);
  for (const auto& [what, pairs] : reasons)
    text += folded(fmt::format("  not {} for {}: {}", what.first, fmt::join(pairs, ", "), what.second), width, 4) + "\n";
  text.pop_back();
  return text;
}

}  // namespace plait::train
