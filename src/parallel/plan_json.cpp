#include "parallel/plan_json.h"

#include "core/error.h"

namespace plait::parallel {

using Json = nlohmann::ordered_json;

Json to_json(const Program& program) {
  Json list = Json::array();
  for (const Instruction& i : program.instructions) {
    Json entry{{"kind", to_string(i.kind)}, {"stream", to_string(i.stream)}};
    if (i.micro_batch >= 0) entry["micro_batch"] = i.micro_batch;
    if (i.block >= 0) entry["block"] = i.block;
    if (i.bucket >= 0) entry["bucket"] = i.bucket;
    if (!i.waits.empty()) entry["waits"] = i.waits;
    list.push_back(std::move(entry));
  }
  return list;
}

Json to_json(const MemoryPlan& plan) {
  Json list = Json::array();
  for (const MemoryItem& item : plan.items()) {
    Json lifetimes = Json::array();
    for (const Lifetime& l : item.lifetimes) lifetimes.push_back({l.first, l.last});
    list.push_back({{"name", item.name}, {"kind", item.kind}, {"bytes", item.bytes}, {"offset", item.offset}, {"lifetimes", lifetimes}});
  }
  return list;
}

Json to_json(const std::vector<RankPlan>& plans, const std::string& schedule, const std::vector<std::string>& devices) {
  require(!plans.empty() && plans.size() == devices.size(), "to_json: a device for every rank's plan");
  const RankPlan& first = plans.front();
  Json json;
  json["layout"] = {{"data", first.layout.data}, {"tensor", first.layout.tensor}, {"pipeline", first.layout.pipeline}};
  json["schedule"] = schedule;
  json["zero"] = first.sharded ? 1 : 0;
  json["micro_batches"] = first.micro_batches;
  json["precision"] = {{"compute", to_string(first.model.compute)},
                       {"gradients", to_string(first.gradient_type)},
                       {"master", to_string(first.master_type)}};
  json["placement"] = Json::array();
  Json peaks = Json::array();
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Coordinates c = plans[i].coordinates();
    json["placement"].push_back(
        {{"rank", plans[i].rank}, {"device", devices[i]}, {"pipeline", c.pipeline}, {"data", c.data}, {"tensor", c.tensor}});
    peaks.push_back(plans[i].memory.total_bytes());
  }
  json["predicted"] = {{"peak_bytes", peaks}};
  json["memory_bytes_by_kind"] = Json::object();
  for (const auto& [kind, bytes] : first.memory.bytes_by_kind()) json["memory_bytes_by_kind"][kind] = bytes;
  json["buckets"] = Json::array();
  for (const Bucket& b : first.flat.buckets()) {
    json["buckets"].push_back({{"elements", b.range.count}, {"blocks", {b.last_block, b.first_block}}});
  }
  return json;
}

}  // namespace plait::parallel
