#include "train/report/link_table.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/config_limits.h"
#include "core/terminal.h"
#include "core/text_table.h"

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_better = 64;

// A link from another rank's report: to_json()'s members, with their types checked.
struct ToldLink {
  Json json;
};

void to_json(Json& json, const ToldLink& link) { json = link.json; }

void from_json(const Json& json, ToldLink& link) {
  constexpr std::int64_t most_ranks = limits::ranks.most;
  comm::Fields fields(json);
  const auto require_texts = [&](const char* name, std::size_t most) {
    for (const Json& entry : fields.list(name, most)) {
      if (!entry.is_string()) comm::Fields::refuse(name, "has an entry that is not a string");
    }
  };
  fields.integer("from", 0, most_ranks), fields.integer("to", 0, most_ranks);
  require_texts("devices", 2);
  if (json.at("devices").size() != 2) comm::Fields::refuse("devices", "must be two");
  fields.text("link"), fields.flag("peer_access"), fields.flag("native_atomics");
  fields.integer("performance_rank", 0, std::numeric_limits<int>::max());
  fields.text("transport"), fields.text("mover"), fields.text("bridge");
  fields.number("message_us"), fields.number("gb_per_s");
  for (const Json& passed : fields.list("better", most_better)) {
    comm::Fields entry(passed);
    entry.text("transport");
    if (!passed.contains("reason") || !passed["reason"].is_string()) comm::Fields::refuse("reason", "is not a string");
  }
  fields.end();
  link.json = json;
}

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
          {"peer_access", report.facts.peer_access()},
          {"native_atomics", there.native_atomics && back.native_atomics},
          {"performance_rank", there.performance_rank},
          {"transport", to_string(report.transport)},
          {"mover", to_string(report.mover)},
          {"bridge", report.bridge},
          {"message_us", report.trial_microseconds},
          {"gb_per_s", report.trial_gb_per_s},
          {"better", std::move(better)}};
}

Json gather_links(const std::string& topic, const std::vector<comm::p2p::LinkReport>& own, comm::Meeting& meeting) {
  std::vector<ToldLink> mine;
  for (const comm::p2p::LinkReport& report : own) mine.push_back({to_json(report)});
  std::vector<Json> links;
  for (const std::vector<ToldLink>& of_rank : meeting.gather_on(0, topic, mine)) {
    for (const ToldLink& link : of_rank) links.push_back(link.json);
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
