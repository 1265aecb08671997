#include "train/report/exchange_report.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "train/report/link_table.h"

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_groups_named = 8;

}  // namespace

Json exchange_report(const parallel::RankPlan& plan, Json links) {
  if (plan.layout.size(Axis::tensor) == 1) return nullptr;
  Json groups = Json::array();
  for (int rank = 0; rank < plan.layout.ranks(); ++rank) {
    if (plan.layout.coordinate(rank, Axis::tensor) == 0)
      groups.push_back(plan.layout.members(parallel::groups::tensor, rank, plan.ends()));
  }
  return {{"by", to_string(plan.exchanges.way)},
          {"reason", plan.exchanges.reason},
          {"groups", std::move(groups)},
          {"links", std::move(links)},
          {"braids", {{"of", to_string(plan.braids.way)}, {"reason", plan.braids.reason}}}};
}

std::string exchange_text(const Json& report, int width) {
  if (report.is_null()) return "";
  const Json& groups = report["groups"];
  std::vector<std::string> names;
  for (std::size_t n = 0; n < std::min(groups.size(), most_groups_named); ++n)
    names.push_back(fmt::format("{}", fmt::join(groups[n].get<std::vector<int>>(), " ")));
  if (groups.size() > names.size()) names.push_back(fmt::format("{} more groups", groups.size() - names.size()));
  std::string text = fmt::format("sums and gathers among tensor-parallel ranks {} go by {}: {}", fmt::join(names, ", "),
                                 report["by"] == "links" ? "links" : "the library", report["reason"].get<std::string>());
  text +=
      fmt::format("\nbraids: {}: {}", report["braids"]["of"].get<std::string>(), report["braids"]["reason"].get<std::string>());
  if (!report["links"].empty()) text += "\n" + link_table(report["links"], width);
  return text;
}

}  // namespace plait::train
