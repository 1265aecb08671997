#include "train/report/link_table.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "comm/p2p/region.h"
#include "core/format.h"
#include "core/limits.h"
#include "core/names.h"
#include "core/terminal.h"
#include "core/text_table.h"
#include "parallel/program/exchanges.h"

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

constexpr std::size_t most_groups_named = 8;

// The report of all groups of this kind.
Json report_of(const parallel::RankPlan& plan, const parallel::Group& group, const parallel::CollectiveChoice& choice,
               Json links) {
  if (plan.members(group).size() == 1) return nullptr;
  Json groups = Json::array();
  for (int rank = 0; rank < plan.layout.ranks(); ++rank) {
    if (plan.layout.lowest_member(group, rank, plan.ends()) == rank)
      groups.push_back(plan.layout.members(group, rank, plan.ends()));
  }
  return {{"by", to_string(choice.way)}, {"reason", choice.reason}, {"groups", std::move(groups)}, {"links", std::move(links)}};
}

std::string names_of(const Json& groups) {
  std::vector<std::string> names;
  for (std::size_t n = 0; n < std::min(groups.size(), most_groups_named); ++n)
    names.push_back(fmt::format("{}", fmt::join(groups[n].get<std::vector<int>>(), " ")));
  if (groups.size() > names.size()) names.push_back(fmt::format("{} more groups", groups.size() - names.size()));
  return fmt::format("{}", fmt::join(names, ", "));
}

// Links through host memory or through another GPU copy to and from slots; kernels can push to all others.
bool has_places(const Json& link) {
  return link["transport"] != to_string(Transport::host) && link["transport"] != to_string(Transport::relay);
}

// LinkCommunicator's rule over all groups: true if the gather after a sum arrives where it is read.
bool gathers_in_place(const Json& links, DeviceKind kind) {
  const auto goes_by = [&](Transport transport) {
    return std::ranges::all_of(links, [&](const Json& link) { return link["transport"] == to_string(transport); });
  };
  return std::ranges::any_of(
      names<Transport>, [&](const auto& name) { return comm::p2p::symmetric_kind(name.value, kind) && goes_by(name.value); });
}

std::string table_of(const Json& links, int width) { return links.empty() ? "" : "\n" + link_table(links, width); }

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

Json exchange_report(const parallel::RankPlan& plan, Json links) {
  Json report = report_of(plan, parallel::groups::tensor, plan.exchanges, std::move(links));
  if (report.is_null()) return report;
  if (plan.goes_by_links(parallel::exchange_group) && plan.device_kind == DeviceKind::cuda) {
    const std::size_t bytes = plan.slice_bytes(parallel::exchange_group);
    int exchanges = 0, by_kernel = 0;
    for (const parallel::Exchange& e : parallel::exchanges_of(plan.train)) {
      const parallel::Instruction& i = plan.train.at(parallel::first_collective(plan.train, e));
      if (!parallel::moves_rows(i)) continue;
      ++exchanges;
      if (bytes <= plan.exchanges.longest_beside(i.beside)) ++by_kernel;
    }
    if (std::ranges::none_of(report["links"], has_places)) by_kernel = 0;
    const Mover mover = by_kernel == exchanges ? Mover::sm_write : Mover::copy_engine;
    for (Json& link : report["links"]) {
      if (has_places(link)) link["mover"] = to_string(mover);
    }
    report["mover"] = to_string(mover);
    report["push_bytes"] = bytes;
    report["exchanges"] = exchanges;
    report["by_kernel"] = by_kernel;
  }
  if (plan.memory.bytes_of(parallel::Allocation::symmetric) > 0)
    report["gathers_in_place"] = gathers_in_place(report["links"], plan.device_kind);
  report["braids"] = {{"of", to_string(plan.braids.way)}, {"reason", plan.braids.reason}};
  return report;
}

Json reduction_report(const parallel::RankPlan& plan, Json links) {
  return report_of(plan, parallel::groups::replicas, plan.reductions, std::move(links));
}

std::string exchange_text(const Json& report, int width) {
  if (report.is_null()) return "";
  const bool by_links = report["by"] == "links";
  std::string pushes;
  if (report.contains("mover")) {
    const int by_kernel = report["by_kernel"].get<int>(), exchanges = report["exchanges"].get<int>();
    pushes = fmt::format("\npushed by {}, {} to each other rank", report["mover"].get<std::string>(),
                         format_bytes(report["push_bytes"].get<double>()));
    if (by_kernel > 0 && by_kernel < exchanges)
      pushes += fmt::format("\n{} of {} exchanges of a step have little beside them: pushed by sm_write", by_kernel, exchanges);
  }
  if (!report.value("gathers_in_place", true))
    pushes += "\nwhat is gathered lands first, and a kernel puts it in its place: not all links are direct, nor all vmm";
  return fmt::format("sums and gathers among tensor-parallel ranks {} go by {}: {}{}\nbraids: {}: {}",
                     names_of(report["groups"]), by_links ? "links" : "the library", report["reason"].get<std::string>(),
                     pushes, report["braids"]["of"].get<std::string>(), report["braids"]["reason"].get<std::string>()) +
         table_of(report["links"], width);
}

std::string reduction_text(const Json& report, int width) {
  if (report.is_null() || report["by"] != "links") return "";
  return fmt::format("gradients of data-parallel ranks {} are reduced by links: {}", names_of(report["groups"]),
                     report["reason"].get<std::string>()) +
         table_of(report["links"], width);
}

}  // namespace plait::train
