#include "parallel/job_plan.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "ops/adamw.h"

namespace plait::parallel {
namespace {

// Ranks with the same pipeline coordinate run the same program. `plans`: by rank, or one per pipeline coordinate.
ProgramSet program_set(const std::vector<RankPlan>& plans, bool training) {
  require(!plans.empty(), "program_set: at least one rank");
  const RankPlan& first = plans.front();
  ProgramSet set{.layout = first.layout,
                 .ends = first.ends(),
                 .segments = model::segments(first.sizes),
                 .micro_batches = training ? first.micro_batches : 1,
                 .zero = first.zero,
                 .documents = first.sizes.micro_batch.documents,
                 .tied = first.sizes.shape.tie_embeddings,
                 .training = training,
                 .programs = {},
                 .program_of = {}};
  for (const RankPlan& plan : plans) {
    if (plan.coordinates()[stage_axis] != static_cast<int>(set.programs.size())) continue;
    set.programs.push_back({training ? plan.train : plan.evaluate, plan.flat.buckets()});
  }
  for (int rank = 0; rank < first.layout.ranks(); ++rank) set.program_of.push_back(first.layout.coordinate(rank, stage_axis));
  return set;
}

// The bytes of a plan's memory when its AdamW table has another size.
class MemoryByTable {
 public:
  explicit MemoryByTable(const RankPlan& plan) : items_(plan.memory.items()) {
    const auto is_table = [](const MemoryItem& item) { return item.name == "adamw_table"; };
    const auto table = std::ranges::find_if(items_, is_table);
    require(table != items_.end(), "planned_bytes: a plan without a table of AdamW");
    table_ = static_cast<std::size_t>(table - items_.begin());
    known_[table->bytes] = plan.memory.total_bytes();
  }

  std::size_t total(std::size_t table_bytes) {
    const auto [known, is_new] = known_.try_emplace(table_bytes);
    if (is_new) {
      items_[table_].bytes = table_bytes;
      known->second = MemoryPlan(items_).total_bytes();
    }
    return known->second;
  }

 private:
  std::vector<MemoryItem> items_;
  std::size_t table_ = 0;
  std::map<std::size_t, std::size_t> known_;  // total bytes, by bytes of the table
};

// The flat layout of another rank of the plan's tensor group.
FlatLayout layout_of(const RankPlan& plan, int tensor_rank) {
  if (tensor_rank == plan.sizes.split.rank) return plan.flat;
  std::vector<int> segments;
  for (int segment = 0; segment < plan.sizes.shape.segments(); ++segment) {
    if (plan.holds(segment)) segments.push_back(segment);
  }
  model::TensorSplit split = plan.sizes.split;
  split.rank = tensor_rank;
  FlatLayout::Options options = plan.flat.options();
  options.rank = plan.layout.moved(plan.rank, segment_axis, tensor_rank);
  return {model::parameters(plan.sizes.shape, split, segments), options};
}

}  // namespace

std::vector<std::size_t> planned_bytes(const std::vector<RankPlan>& stages) {
  require(!stages.empty(), "planned_bytes: at least one stage");
  const Layout& layout = stages.front().layout;
  std::vector<std::size_t> bytes(static_cast<std::size_t>(layout.ranks()));
  for (const RankPlan& plan : stages) {
    MemoryByTable memory(plan);
    for (int tensor = 0; tensor < layout.size(segment_axis); ++tensor) {
      FlatLayout flat = layout_of(plan, tensor);
      std::size_t total = 0;
      const int first = layout.rank({{segment_axis, tensor}, {stage_axis, plan.coordinates()[stage_axis]}});
      for (const int rank : layout.members(groups::replicas, first, plan.ends())) {
        if (rank == first || plan.zero > 0) {  // without ZeRO every rank keeps all of the state
          flat.move_to(rank);
          total = memory.total(ops::adamw_table_bytes(flat.adamw_ranges(), plan.moment_type));
        }
        bytes[static_cast<std::size_t>(rank)] = total;
      }
    }
  }
  return bytes;
}

std::vector<RankPlan> make_job_plan(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout,
                                    DeviceKind device_kind) {
  std::vector<RankPlan> plans;
  const JobOutline outline = outline_plans(config, decision, vocab, layout, device_kind);
  for (int rank = 0; rank < layout.ranks(); ++rank) plans.push_back(make_rank_plan(config, outline, layout, rank, device_kind));
  return plans;
}

ProgramSet training_programs(const std::vector<RankPlan>& plans) { return program_set(plans, true); }
ProgramSet evaluation_programs(const std::vector<RankPlan>& plans) { return program_set(plans, false); }

std::vector<RankPlan> make_stage_plans(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout,
                                       DeviceKind device_kind) {
  std::vector<RankPlan> plans;
  const JobOutline outline = outline_plans(config, decision, vocab, layout, device_kind);
  for (int pipeline = 0; pipeline < layout.size(stage_axis); ++pipeline) {
    plans.push_back(make_rank_plan(config, outline, layout, layout.rank({{stage_axis, pipeline}}), device_kind));
  }
  return plans;
}

}  // namespace plait::parallel
