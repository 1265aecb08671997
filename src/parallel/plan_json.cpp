#include "parallel/plan_json.h"

#include "core/error.h"
#include "parallel/schedule/schedule_timeline.h"

namespace plait::parallel {

using Json = nlohmann::ordered_json;

Json to_json(const Program& program) {
  Json list = Json::array();
  for (const Instruction& i : program.instructions) {
    Json entry{{"kind", to_string(i.kind)}, {"stream", to_string(program.stream_of(i))}};
    const auto set = [&](const char* name, int value) {
      if (value >= 0) entry[name] = value;
    };
    set("micro_batch", i.micro_batch);
    set("chunk", i.chunk);
    set("segment", i.segment);
    set("bucket", i.bucket);
    if (program.segments.size() > 0 && computes_segment(i.kind) && !program.segment(i.segment).in_forward.empty())
      set("part", i.part);
    if (is_collective(i)) {
      const Collective& c = i.collective;
      entry["collective"] = {{"operation", to_string(c.operation)},
                             {"group", to_string(c.group)},
                             {"purpose", to_string(c.purpose)},
                             {"source", to_string(c.source)},
                             {"destination", to_string(c.destination)},
                             {"elements", c.elements},
                             {"dtype", to_string(c.dtype)}};
    }
    if (communicates_in_pass(i)) entry["beside"] = i.beside;
    if (program.lanes > 1 || communicates_in_pass(i)) set("lane", i.lane);
    set("batch_slot", i.batch_slot);
    set("slot", i.slot);
    set("input_slot", i.input_slot);
    set("stash", i.stash);
    set("gradient_in", i.gradient_in);
    set("gradient_out", i.gradient_out);
    set("peer_chunk", i.peer_chunk);
    set("peer_slot", i.peer_slot);
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
    list.push_back(
        {{"name", item.name}, {"kind", item.kind}, {"bytes", item.bytes}, {"offset", item.offset}, {"lifetimes", lifetimes}});
  }
  return list;
}

Json to_json(const Layout& layout) {
  Json json;
  for (const Axis axis : layout.axes()) json[to_string(axis)] = layout.size(axis);
  return json;
}

Json plan_document(const std::vector<RankPlan>& plans, const std::vector<std::string>& devices, const Json& decision) {
  require(!plans.empty(), "plan_document: at least one plan");
  const RankPlan& first = plans.front();
  const int ranks = first.layout.ranks();
  const bool by_stage = static_cast<int>(plans.size()) < ranks;
  require(static_cast<int>(devices.size()) == ranks &&
              static_cast<int>(plans.size()) == (by_stage ? first.layout.size(stage_axis) : ranks),
          "plan_document: a device for every rank, and a plan for every rank or every pipeline coordinate");
  Json json;
  json["layout"] = to_json(first.layout);
  json["schedule"] = first.schedule.name;
  json["zero"] = first.zero;
  json["micro_batches"] = first.micro_batches;
  json["precision"] = {{"compute", to_string(first.sizes.compute)},
                       {"matmul", first.sizes.fp8 ? to_string(MatmulType::fp8) : std::string(to_string(first.sizes.compute))},
                       {"gradients", to_string(first.gradient_type)},
                       {"master", to_string(first.master_type)},
                       {"moments", to_string(first.moment_type)}};
  json["placement"] = Json::array();
  for (int rank = 0; rank < ranks; ++rank) {
    Json place = {{"rank", rank}, {"device", devices[static_cast<std::size_t>(rank)]}};
    for (const Axis axis : first.layout.axes()) place[to_string(axis)] = first.layout.coordinate(rank, axis);
    json["placement"].push_back(std::move(place));
  }
  json["stages"] = Json::array();
  for (int stage = 0; stage < first.schedule.stages.count(); ++stage) {
    const SegmentRange& segments = first.stages[static_cast<std::size_t>(stage)];
    json["stages"].push_back(
        {{to_string(stage_axis), first.schedule.stages.rank_of(stage)}, {"segments", {segments.first, segments.end - 1}}});
  }
  json["predicted"] = decision.at("predicted");
  json["memory_bytes_by_kind"] = Json::object();
  for (const auto& [kind, bytes] : first.memory.bytes_by_kind()) json["memory_bytes_by_kind"][kind] = bytes;
  json["buckets"] = Json::array();
  for (const Bucket& b : first.flat.buckets()) {
    json["buckets"].push_back({{"elements", b.range.count}, {"segments", b.segments}});
  }
  json.update(decision);
  return json;
}

}  // namespace plait::parallel
