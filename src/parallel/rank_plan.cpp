#include "parallel/rank_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "config/job_rules.h"
#include "core/batch_split.h"
#include "core/collective.h"
#include "core/error.h"
#include "model/model_flops.h"
#include "parallel/schedule/braids.h"
#include "parallel/schedule/pass_messages.h"
#include "parallel/schedule/planned_schedule.h"

namespace plait::parallel {

DType compute_type(const Config& config, DeviceKind kind) {
  const Known<DType> type = facts_of(config, kind).compute;
  require_rules({.device = kind, .compute = type});
  return type.value();
}

namespace {

// comm.bucket_mb in bytes.
std::int64_t bucket_bytes(const Config& config, const std::vector<model::Parameter>& parameters, DType gradient_type) {
  constexpr std::int64_t mebibyte = 1024 * 1024;
  if (!config.comm.bucket_mb.is_auto()) return static_cast<std::int64_t>(config.comm.bucket_mb * static_cast<double>(mebibyte));
  std::int64_t elements = 0;
  for (const model::Parameter& p : parameters) elements += p.shape.elements();
  return std::clamp(elements * static_cast<std::int64_t>(size_of(gradient_type)) / 16, 25 * mebibyte, 200 * mebibyte);
}

// Times and memory of stages, where a stage takes its segments' FLOPs and holds its number of segments. Each rank has room for
// as many micro-batches as there are ranks: the first one of 1F1B needs that.
StageTimes times_by_flops(const Config& config, const model::ModelShape& shape, const StageMap& map, StageSplits* splits) {
  const std::vector<double> costs = segment_costs(shape, config.data.sequence_length);
  StageTimes times;
  times.limit.assign(static_cast<std::size_t>(map.ranks()), 0);
  int stage = 0;
  for (const SegmentRange& range : stages_of(config, shape, map, splits)) {
    // Backward has two matrix products for each one of forward.
    const double third = std::accumulate(costs.begin() + range.first, costs.begin() + range.end, 0.0) / 3;
    times.forward.push_back(third);
    times.backward_input.push_back(config.parallel.recompute == Recompute::full ? 2 * third : third);
    times.backward_weight.push_back(third);
    times.held.push_back(range.end - range.first);
    times.limit[static_cast<std::size_t>(map.rank_of(stage++))] += map.ranks() * times.held.back();
  }
  take_head_at_once(times, costs.back() / 3);
  return times;
}

Schedule schedule_of(const Config& config, const Decision& decision, const model::ModelShape& shape, const Layout& layout,
                     int micro_batches, StageSplits* splits) {
  const ParallelConfig& p = config.parallel;
  const ScheduleKind kind = p.schedule.value();
  // Without a pipeline, all schedules but a file's are the same.
  if (layout.size(stage_axis) == 1 && kind != ScheduleKind::file) return make_schedule({.micro_batches = micro_batches});
  if (kind == ScheduleKind::planned && !decision.passes) {
    return planned_schedule(layout.size(stage_axis), static_cast<int>(p.virtual_stages), micro_batches,
                            [&](const StageMap& map) { return times_by_flops(config, shape, map, splits); });
  }
  return make_schedule({.kind = kind,
                        .ranks = layout.size(stage_axis),
                        .virtual_stages = static_cast<int>(p.virtual_stages),
                        .micro_batches = micro_batches,
                        .file = kind == ScheduleKind::planned ? decision.passes : p.schedule_file});
}

// Segments of one pipeline rank, ascending.
std::vector<int> segments_of(const Schedule& schedule, const std::vector<SegmentRange>& stages, int pipeline_rank) {
  std::vector<int> segments;
  for (int stage = 0; stage < schedule.stages.count(); ++stage) {
    if (schedule.stages.rank_of(stage) != pipeline_rank) continue;
    const SegmentRange& range = stages[static_cast<std::size_t>(stage)];
    for (int segment = range.first; segment < range.end; ++segment) segments.push_back(segment);
  }
  return segments;
}

}  // namespace

bool RankPlan::holds(int segment) const {
  return std::any_of(train.chunks.begin(), train.chunks.end(),
                     [segment](const Chunk& c) { return segment >= c.first_segment && segment < c.end_segment; });
}

bool RankPlan::has_barrier() const { return std::any_of(train.instructions.begin(), train.instructions.end(), is_barrier); }

std::vector<SegmentRange> stages_of(const Config& config, const model::ModelShape& shape, const StageMap& map,
                                    StageSplits* splits) {
  const int count = map.count();
  require_rules({.size = {{stage_axis, map.ranks()}}, .layers = shape.layers, .stages = count});
  if (static_cast<int>(config.parallel.stages.size()) == count) return given_stages(config.parallel.stages);
  const std::vector<double> costs = segment_costs(shape, config.data.sequence_length);
  return splits ? splits->split(costs, map) : split_stages(costs, map);
}

std::vector<ReceivedBuffer> received_buffers(const RankPlan& plan) {
  const std::int64_t own = plan.sizes.own_rows(), whole = plan.sizes.micro_batch.rows(), hidden = plan.sizes.shape.hidden;
  std::vector<ReceivedBuffer> buffers;
  for (int index = 0; index < static_cast<int>(plan.train.chunks.size()); ++index) {
    const Chunk& c = plan.train.chunks[static_cast<std::size_t>(index)];
    for (int slot = 0; slot < c.input_slots; ++slot) {
      buffers.push_back({{BufferKind::input, index, slot}, c.previous_rank, {own, hidden}, 0});
    }
    for (int slot = 0; slot < c.gradient_in_slots; ++slot) {
      buffers.push_back({{BufferKind::received_gradient, index, slot},
                         c.next_rank,
                         {whole, hidden},
                         own == whole ? 0 : plan.sizes.split.rank * own});
    }
  }
  return buffers;
}

DType master_type(const Config& config) { return config.precision.compute == "fp64" ? DType::f64 : DType::f32; }

DType moment_type(const Config& config) {
  const DType master = master_type(config);
  return master == DType::f64 ? master : dtype_from(config.precision.moments);
}

namespace {

// `axis`: the axis whose configuration keys choose for groups along `axes`.
void require_few_for_links(const CollectiveChoice& choice, Axis axis, AxisSet axes, const Layout& layout) {
  if (choice.way != CollectiveWay::links || layout.size(axes) <= link_collectives::most_ranks) return;
  const std::string key = way_key(row_of(axis).way);
  throw ConfigError({{key, to_string(choice.way),
                      fmt::format("needs a {} of at most {}, here it is {}; {}=library takes any", axis_key(axis),
                                  link_collectives::most_ranks, layout.size(axes), key),
                      "", 0}});
}

// GPUs multiply bf16 tensors, rounded to FP8, whose dims are multiples of 16.
void require_fp8_fits(const model::SegmentSizes& sizes, DeviceKind device_kind) {
  if (!sizes.fp8 || device_kind != DeviceKind::cuda) return;
  const auto refuse = [](const std::string& why) { throw ConfigError({{"precision.matmul", "fp8", "on GPUs " + why, "", 0}}); };
  const model::ModelShape s = sizes.shape.local(sizes.split.size);
  const auto check = [&](std::int64_t dim, const char* what) {
    if (dim % ops::fp8_multiple != 0)
      refuse("needs multiples of " + std::to_string(ops::fp8_multiple) + ": a rank's " + what + " here are " +
             std::to_string(dim));
  };
  check(s.hidden, "columns of the residual stream (model.hidden)");
  check(s.qkv_dim(), "query, key and value columns (model.heads, kv_heads, head_dim)");
  check(s.attention_dim(), "attention columns (model.heads, head_dim)");
  check(s.ffn, "MLP columns (model.ffn)");
  check(sizes.micro_batch.rows(), "tokens of a pass (train.micro_batch, data.sequence_length, comm.braid=halves)");
}

// The limits of attention on GPUs in fp32.
void require_attention_fits(const model::SegmentSizes& sizes, DeviceKind device_kind) {
  if (sizes.compute != DType::f32 || device_kind != DeviceKind::cuda) return;
  const auto check = [&](const char* key, std::int64_t value, std::int64_t most) {
    if (value > most)
      throw ConfigError(
          {{key, std::to_string(value), fmt::format("must be at most {} on GPUs with precision.compute=fp32", most), "", 0}});
  };
  check("model.head_dim", sizes.shape.head_dim, ops::most_f32_head_dim);
  check("train.micro_batch", sizes.micro_batch.batch, ops::most_f32_heads);
}

}  // namespace

JobOutline outline_job(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout,
                       DeviceKind device_kind, StageSplits* splits) {
  JobFacts facts = facts_of(config, device_kind);
  facts.size = layout.sizes(), facts.ranks = layout.ranks();
  facts.tokenizer_vocab = vocab;
  require_rules(facts);
  const DType compute = facts.compute.value();
  const model::ModelShape shape =
      model::resolve_shape(config.model, vocab, config.data.sequence_length, layout.size(segment_axis));
  JobOutline job{
      .sizes = {.shape = shape,
                .split = {0, layout.size(segment_axis), config.parallel.sequence_parallel && layout.size(segment_axis) > 1},
                .micro_batch = {config.train.micro_batch, config.data.sequence_length, config.data.documents},
                .compute = compute,
                .recompute = config.parallel.recompute.value(),
                .fp8 = config.precision.matmul == MatmulType::fp8},
      .gradient_type = compute == DType::f64 ? compute : dtype_from(config.precision.gradients),
      .master_type = master_type(config),
      .moment_type = moment_type(config),
      .separate_master = true,
      .exchanges = choose_exchanges(config, decision, layout.size(segment_axis), device_kind),
      .reductions = choose_reductions(config, decision, layout.size(replica_axes), device_kind),
      .braids = choose_braids(facts),
      .micro_batches = static_cast<int>(facts.micro_batch_count().value()),
      .schedule = {},
      .stages = {}};
  require_few_for_links(job.exchanges, segment_axis, groups::tensor.axes, layout);
  require_few_for_links(job.reductions, reduced_axis, replica_axes, layout);
  job.separate_master = config.parallel.zero > 0 || job.master_type != compute;
  job.schedule = schedule_of(config, decision, shape, layout, job.micro_batches, splits);
  switch (job.braids.way) {
    case Braid::none: unbraid(job.schedule); break;
    case Braid::passes: braid(job.schedule); break;
    case Braid::ahead:
      begin_ahead(job.schedule);
      braid(job.schedule);
      break;
    case Braid::halves:
      halve(job.schedule);
      job.micro_batches *= 2;
      job.sizes.micro_batch.batch /= 2;
      break;
  }
  require_fp8_fits(job.sizes, device_kind);
  require_attention_fits(job.sizes, device_kind);
  job.stages = stages_of(config, shape, job.schedule.stages, splits);
  return job;
}

JobOutline outline_plans(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout,
                         DeviceKind device_kind) {
  JobOutline job = outline_job(config, decision, vocab, layout, device_kind);
  time_messages(job.schedule);
  return job;
}

RankPlan make_rank_plan(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout, int rank,
                        DeviceKind device_kind) {
  return make_rank_plan(config, outline_plans(config, decision, vocab, layout, device_kind), layout, rank, device_kind);
}

double least_bytes(const Config& config, const JobOutline& job, const Layout& layout, int rank) {
  const Coordinates at = layout.coordinates(rank);
  model::TensorSplit split = job.sizes.split;
  split.rank = at[segment_axis];
  double elements = 0;
  for (const model::Parameter& p :
       model::parameters(job.sizes.shape, split, segments_of(job.schedule, job.stages, at[stage_axis])))
    elements += static_cast<double>(p.shape.elements());
  const auto bytes = [](DType type) { return static_cast<double>(size_of(type)); };
  const double shards = layout.size(replica_axes), zero = static_cast<double>(config.parallel.zero);
  const double state = (job.separate_master ? bytes(job.master_type) : 0) + 2 * bytes(job.moment_type);
  return elements *
         (bytes(job.sizes.compute) + bytes(job.gradient_type) / (zero > 1 ? shards : 1) + state / (zero > 0 ? shards : 1));
}

RankPlan make_rank_plan(const Config& config, const JobOutline& job, const Layout& layout, int rank, DeviceKind device_kind) {
  const Coordinates at = layout.coordinates(rank);
  model::SegmentSizes sizes = job.sizes;
  sizes.split.rank = at[segment_axis];
  const model::ModelShape& shape = sizes.shape;
  const Schedule& schedule = job.schedule;
  const std::vector<int> segments = segments_of(schedule, job.stages, at[stage_axis]);
  std::vector<int> chunk_starts;
  for (int chunk = 0; chunk < schedule.stages.chunks(at[stage_axis]); ++chunk) {
    chunk_starts.push_back(job.stages[static_cast<std::size_t>(schedule.stages.stage(at[stage_axis], chunk))].first);
  }
  const bool tied_here = shape.tie_embeddings && segments.front() == 0 && segments.back() == shape.head_segment();
  std::vector<model::Parameter> parameters = model::parameters(shape, sizes.split, segments);
  const int zero = static_cast<int>(config.parallel.zero);
  FlatLayout flat(parameters, {.layout = layout,
                               .rank = rank,
                               .zero = zero,
                               .bucket_bytes = bucket_bytes(config, parameters, job.gradient_type),
                               .gradient_type = job.gradient_type,
                               .tied_head = tied_here ? shape.head_segment() : -1,
                               .chunk_starts = std::move(chunk_starts)});

  RankPlan plan{.layout = layout,
                .rank = rank,
                .device_kind = device_kind,
                .sizes = sizes,
                .gradient_type = job.gradient_type,
                .master_type = job.master_type,
                .moment_type = job.moment_type,
                .exchanges = job.exchanges,
                .reductions = job.reductions,
                .braids = job.braids,
                .all_by_links = config.launch.may_share_devices(),
                .deterministic = config.precision.deterministic,
                .graph = config.train.graph,
                .zero = zero,
                .separate_master = job.separate_master,
                .micro_batches = job.micro_batches,
                .global_batch = config.train.global_batch,
                .sequence_length = config.data.sequence_length,
                .schedule = schedule,
                .stages = job.stages,
                .parameters = std::move(parameters),
                .flat = std::move(flat),
                .train = {},
                .evaluate = {},
                .memory = {},
                .tensors = {}};
  const ProgramSpec spec{.schedule = schedule,
                         .sizes = sizes,
                         .stages = job.stages,
                         .rank = at[stage_axis],
                         .buckets = plan.flat.buckets(),
                         .zero = zero,
                         .gradient_type = job.gradient_type,
                         .overlap = config.comm.overlap,
                         .tied_here = tied_here};
  plan.train = training_program(spec);
  plan.evaluate = evaluation_program(spec);
  plan_memory(plan);
  return plan;
}

namespace {

// What `auto` is where links would do: why it is not them, if it is not.
std::string why_not_links(const Config& config, const Decision& decision, const std::string& key, int ranks) {
  const std::string takes = key + "=auto takes it ";
  if (decision.collectives == CollectiveWay::links) {
    if (config.train.graph == GraphUse::on) return takes + "with train.graph=on";
    if (ranks <= link_collectives::most_ranks_by_itself) return "";
    return takes + fmt::format("among more than {} ranks", link_collectives::most_ranks_by_itself);
  }
  if (config.comm.peer_access == PeerAccessUse::off) return takes + "with comm.peer_access=off";
  return takes + "where not every two GPUs are joined by NVLink in one host";
}

CollectiveChoice choose_way(const Config& config, const Decision& decision, const std::string& key,
                            const Auto<CollectiveWay>& asked, int ranks) {
  if (config.launch.may_share_devices()) return {CollectiveWay::links, "ranks may share a device (launch.ranks_per_device)"};
  if (!asked.is_auto()) return {asked.value(), key + "=" + to_string(asked.value()) + " asks for it"};
  if (const std::string why = why_not_links(config, decision, key, ranks); !why.empty()) return {CollectiveWay::library, why};
  return {CollectiveWay::links, key + "=auto takes them where NVLink joins every two GPUs of the one host"};
}

// Kernels can push to the place where messages arrive unless that is host memory between GPUs. (Single pairs of ranks may be
// slower, comm.p2p_pairs: kernels push between the others.)
bool kernels_push(const Config& config, DeviceKind device_kind) {
  return device_kind == DeviceKind::cuda && config.comm.peer_access != PeerAccessUse::off &&
         config.comm.p2p != Transport::host && config.comm.p2p != Transport::relay;
}

// Bytes pushed and work computed meanwhile both grow with the tokens of a rank's rows, so the limit is one on their product.
double most_beside_kernel(const Config& config, int ranks) {
  using namespace link_collectives;
  if (!config.comm.mover.is_auto() || ranks < fewest_ranks_by_kernel) return 0;
  const model::ModelShape shape = model::resolve_shape(config.model, 1, config.data.sequence_length);
  const std::int64_t in_blocks = model::flop_terms(shape, config.data.sequence_length).block_parameters;
  // FLOPs that a rank computes in half a block (P / 2 parameters), over bytes that it pushes to each other rank: 2 P / 2 FLOPs
  // for a row, and `hidden` numbers. Tensor parallelism divides both by the number of ranks, so their ratio stays.
  const double flops_per_byte = static_cast<double>(in_blocks) / static_cast<double>(shape.layers * shape.hidden) /
                                static_cast<double>(size_of(DType::bf16));
  const double most_flops = most_flops_beside_kernel * (config.precision.matmul == MatmulType::fp8 ? 2 : 1);
  return most_flops / (flops_per_byte / 2);
}

}  // namespace

CollectiveChoice choose_exchanges(const Config& config, const Decision& decision, int tensor_ranks, DeviceKind device_kind) {
  CollectiveChoice choice = choose_way(config, decision, way_key(WayKey::exchanges), config.comm.exchanges, tensor_ranks);
  if (!kernels_push(config, device_kind)) return choice;
  const bool all = config.comm.mover == Mover::sm_write;
  choice.longest_by_kernel = all ? std::numeric_limits<std::size_t>::max() : link_collectives::longest_short_push;
  choice.most_beside_kernel = most_beside_kernel(config, tensor_ranks);
  return choice;
}

std::size_t CollectiveChoice::longest_beside(int quarters) const {
  if (most_beside_kernel <= 0) return longest_by_kernel;
  if (quarters == 0) return std::numeric_limits<std::size_t>::max();
  return std::max(longest_by_kernel, static_cast<std::size_t>(most_beside_kernel / quarters));
}

CollectiveChoice choose_reductions(const Config& config, const Decision& decision, int data_ranks, DeviceKind device_kind) {
  if (config.comm.reductions.is_auto() && config.parallel.zero == 0 && !config.launch.may_share_devices())
    return {CollectiveWay::library, "comm.reductions=auto takes it where parallel.zero is 0"};
  CollectiveChoice choice = choose_way(config, decision, way_key(WayKey::reductions), config.comm.reductions, data_ranks);
  if (kernels_push(config, device_kind)) choice.longest_by_kernel = link_collectives::longest_short_push;
  return choice;
}

BraidChoice choose_braids(const JobFacts& facts) {
  if (facts.along(segment_axis) == 1) return {Braid::none, "nothing is exchanged within passes"};
  const Known<Braid> asked = facts.braid;
  const std::string set = "comm.braid=" + (asked ? to_string(*asked) : "auto");
  if (!asked || (asked == Braid::halves && facts.has_partners().value()))
    return {Braid::passes, set + " takes them where there are passes to pair"};
  return {*asked, set + " asks for it"};
}

bool RankPlan::goes_by_links(const GroupStream& group) const {
  if (all_by_links) return members(group.group).size() > 1;
  if (group.group == groups::tensor) return exchanges.way == CollectiveWay::links && layout.size(segment_axis) > 1;
  return group == reduction_group && reductions.way == CollectiveWay::links && layout.size(replica_axes) > 1;
}

std::size_t RankPlan::slice_bytes(const GroupStream& group) const {
  const auto share = [](std::int64_t count, int ranks) { return static_cast<std::size_t>((count + ranks - 1) / ranks); };
  if (group == exchange_group) {
    const auto rows = share(sizes.micro_batch.rows(), layout.size(segment_axis));
    return rows * static_cast<std::size_t>(sizes.shape.hidden) * size_of(sizes.compute);
  }
  if (group != reduction_group) {  // sums over replicas of a parameter, scales of FP8 weights, figures of a step
    std::size_t bytes = 0;
    const int ranks = static_cast<int>(members(group.group).size());
    for (const Instruction& i : train.instructions) {
      const Collective& c = i.collective;
      if (collective_group(i) == group) bytes = std::max(bytes, share(c.elements, ranks) * size_of(c.dtype));
    }
    return std::min(bytes, link_collectives::most_reduced_at_once);
  }
  std::int64_t largest = 0;
  for (const Bucket& bucket : flat.buckets()) largest = std::max(largest, bucket.range.count);
  const std::size_t element = std::max(size_of(gradient_type), zero > 0 ? size_of(sizes.compute) : 0);
  return std::min(share(largest, layout.size(replica_axes)) * element, link_collectives::most_reduced_at_once);
}

std::size_t RankPlan::landing_bytes(const GroupStream& group) const {
  if (!goes_by_links(group)) return 0;
  const std::size_t others = members(group.group).size() - 1;
  return others * link_collectives::places * link_collectives::bytes_of_place(slice_bytes(group));
}

std::size_t RankPlan::longest_by_kernel(const GroupStream& group) const {
  return (group.group == groups::tensor ? exchanges : reductions).longest_by_kernel;
}

std::string RankPlan::graph_obstacle() const {
  if (layout.size(stage_axis) > 1) return "messages between stages have no place in a CUDA graph";
  if (goes_by_links(exchange_group) || goes_by_links(reduction_group) || (all_by_links && layout.ranks() > 1))
    return "collectives by links have no place in a CUDA graph";
  return "";
}

std::vector<GroupStream> group_streams_of(const RankPlan& plan) {
  std::vector<GroupStream> list = {exchange_group, reduction_group};
  const auto add = [&](const GroupStream& group) {
    if (std::ranges::find(list, group) == list.end()) list.push_back(group);
  };
  for (const Group& group : {groups::tied, groups::world}) add({group, StreamRole::reduce});
  // The other groups' ranks all run the same program, so each of them finds the same list.
  for (const Instruction& i : plan.train.instructions) {
    if (const auto group = collective_group(i)) add(*group);
  }
  return list;
}

std::vector<std::vector<int>> communicators_of(const RankPlan& plan) {
  std::vector<std::vector<int>> list;
  std::set<std::pair<StreamRole, std::vector<int>>> made;
  for (const GroupStream& group : group_streams_of(plan)) {
    std::vector<int> members = plan.members(group.group);
    if (plan.goes_by_links(group) || members.size() == 1) continue;
    if (made.insert({group.role, members}).second) list.push_back(std::move(members));
  }
  return list;
}

}  // namespace plait::parallel
