#include "train/report/collective_report.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "comm/p2p/symmetric_memory.h"
#include "core/format.h"
#include "core/names.h"
#include "parallel/program/exchanges.h"
#include "train/report/link_table.h"

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

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
