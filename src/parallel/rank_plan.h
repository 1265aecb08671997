// The plan of one rank: all that the interpreter needs to run it, as data computed without a device.
#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"
#include "config/job_rules.h"
#include "core/collective.h"
#include "core/device.h"
#include "model/transformer.h"
#include "parallel/decision.h"
#include "parallel/flat_layout.h"
#include "parallel/memory_plan.h"
#include "parallel/mesh.h"
#include "parallel/program/pipeline_program.h"
#include "parallel/program/program.h"
#include "parallel/rank_tensors.h"

namespace plait::parallel {

// What the collectives of a kind of groups go by, and why, for the user. Planner, memory plan and ranks follow it; ranks that
// cannot make their links say so and end (comm/p2p/link_communicator.h), and do not fall back.
struct CollectiveChoice {
  CollectiveWay way = CollectiveWay::library;
  std::string reason = {};
  // By links. Of pushes to each other rank, those up to so many bytes are made by a kernel, others by copy engines: of any
  // collective, and of an exchange with so many quarters of blocks beside it (Instruction::beside).
  std::size_t longest_by_kernel = 0;
  std::size_t longest_beside(int quarters) const;
  double most_beside_kernel = 0;  // bytes times quarters
};
// Of all tensor groups of a job: as asked for, else as decided.
CollectiveChoice choose_exchanges(const Config& config, const Decision& decision, int tensor_ranks, DeviceKind device_kind);
// Of all groups of data-parallel replicas, for their gradients and weights: the same, but without ZeRO the library by itself.
// On 4 × H200 a step of GPT-2 124M with it took 0.98 of the time by links, and 1.02 without (docs/performance.md).
CollectiveChoice choose_reductions(const Config& config, const Decision& decision, int data_ranks, DeviceKind device_kind);

// Which passes are braided (comm.braid), and why, for the user.
struct BraidChoice {
  Braid way = Braid::none;
  std::string reason;
};
// Of a job that breaks no rule, with all facts known; nothing about a machine decides it, so that all ranks and the planner
// come to the same.
BraidChoice choose_braids(const JobFacts& facts);

struct RankPlan {
  Layout layout;
  int rank = 0;
  DeviceKind device_kind = DeviceKind::host;
  model::SegmentSizes sizes;
  DType gradient_type = DType::f32;
  DType master_type = DType::f32;  // of master weights
  DType moment_type = DType::f32;  // of AdamW's moments
  CollectiveChoice exchanges;      // of its tensor group, if that has several ranks
  CollectiveChoice reductions;     // of its group of replicas, likewise
  BraidChoice braids;
  bool deterministic = false;                // the same bits on every run, on GPUs too
  GraphUse graph = GraphUse::automatic;      // a step as one launch
  int zero = 0;                              // what is sharded over the data axis: 1 optimizer state, 2 gradients as well
  bool separate_master = true;               // false: the weights are the master weights
  int micro_batches = 1;                     // per data-parallel rank and step, of sizes.micro_batch: halves where these are
  std::int64_t global_batch = 0;             // sequences per step, all ranks
  std::int64_t sequence_length = 0;          // tokens of each of them
  Schedule schedule;                         // of all pipeline ranks
  std::vector<SegmentRange> stages;          // of the model, in order
  std::vector<model::Parameter> parameters;  // of this rank
  FlatLayout flat;
  Program train;
  Program evaluate;
  MemoryPlan memory;
  RankTensors tensors;  // in its arena and symmetric memory

  Coordinates coordinates() const { return layout.coordinates(rank); }
  ModelEnds ends() const { return {schedule.stages.rank_of(0), schedule.stages.rank_of(schedule.stages.count() - 1)}; }
  std::vector<int> members(Group group) const { return layout.members(group, rank, ends()); }
  bool holds(int segment) const;
  // Backward has its norm computed again.
  bool recomputes_norm(int segment) const {
    const model::SegmentKind kind = sizes.shape.kind(segment);
    return sizes.recompute != model::Recompute::none && has_norm(kind) && has_output(kind);
  }
  // It stands for those that hold the same parameters, where each of these counts once.
  bool is_first_replica() const { return layout.coordinate(rank, replica_axes) == 0; }
  // This rank's share of the loss counts: one tensor-parallel rank stands for its group.
  bool counts_loss() const { return holds(sizes.shape.head_segment()) && sizes.split.rank == 0; }
  std::int64_t tokens_per_step() const { return global_batch * sequence_length; }  // of all ranks
  bool has_barrier() const;                                                        // its training program has one
  // Its collectives go by links (comm/p2p/link_communicator.h), in messages of at most slice_bytes(), which land in
  // landing_bytes() of memory; in less where messages come through slots in the host's.
  bool goes_by_links(const GroupStream& group) const;
  std::size_t slice_bytes(const GroupStream& group) const;
  std::size_t landing_bytes(const GroupStream& group) const;      // 0 unless it goes by links
  std::size_t longest_by_kernel(const GroupStream& group) const;  // of any collective
  // Why its steps cannot be CUDA graphs, though it is on a GPU; empty: they can.
  std::string graph_obstacle() const;
  DType scalar_type() const { return sizes.compute == DType::f64 ? DType::f64 : DType::f32; }
  model::ModelShape local_shape() const { return sizes.shape.local(sizes.split.size); }
};

// What the rank has a communicator for, in the order in which all ranks make them. Those of the same stream and the same ranks
// share one.
std::vector<GroupStream> group_streams_of(const RankPlan& plan);

// The members of every communicator of several ranks that this rank has of the library, in that order.
std::vector<std::vector<int>> communicators_of(const RankPlan& plan);

// A buffer that messages are received into: from whom, and where in it they arrive (under sequence parallelism a received
// gradient has room for the other ranks' rows too).
struct ReceivedBuffer {
  BufferId buffer;
  int sender = 0;                // pipeline rank
  Shape shape;                   // rows, hidden
  std::int64_t message_row = 0;  // of this rank's rows
};
std::vector<ReceivedBuffer> received_buffers(const RankPlan& plan);

// Of master weights, on any device; checkpoints hold them and the moments so.
DType master_type(const Config& config);
// Of the moments in a rank's memory.
DType moment_type(const Config& config);
// What precision.compute says, or stands for on such a device. ConfigError where there is no such arithmetic.
DType compute_type(const Config& config, DeviceKind kind);

// How the segments are cut into the stages of `map`: as parallel.stages says, or by FLOPs. ConfigError if there are too few.
std::vector<SegmentRange> stages_of(const Config& config, const model::ModelShape& shape, const StageMap& map,
                                    StageSplits* splits = nullptr);

// What the plans of all ranks of a job have in common: no parameters, programs and memory, so it is quick to make. Where
// micro-batches are cut in halves (choose_braids), all of it is about the halves.
struct JobOutline {
  model::SegmentSizes sizes;  // of tensor rank 0
  DType gradient_type = DType::f32, master_type = DType::f32, moment_type = DType::f32;
  bool separate_master = true;
  CollectiveChoice exchanges, reductions;
  BraidChoice braids;
  int micro_batches = 1;
  Schedule schedule;
  std::vector<SegmentRange> stages;
};
// `splits`: of outlines made before, for many of them. A planned schedule whose passes the decision does not have is planned by
// FLOPs: nothing about a machine goes into it, and every rank that makes it for itself has the same.
JobOutline outline_job(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout,
                       DeviceKind device_kind, StageSplits* splits = nullptr);

// The same, with a schedule that programs may be made of (parallel/schedule/pass_messages.h).
JobOutline outline_plans(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout,
                         DeviceKind device_kind);

// `vocab`: of the tokenizer. ConfigError when batch sizes, precision, schedule and layout do not fit together.
RankPlan make_rank_plan(const Config& config, const Decision& decision, std::int64_t vocab, const Layout& layout, int rank,
                        DeviceKind device_kind);
// The same for several ranks of a job: `outline` is outline_plans() of these arguments.
RankPlan make_rank_plan(const Config& config, const JobOutline& outline, const Layout& layout, int rank,
                        DeviceKind device_kind);
// What its weights, gradients and optimizer state take at least: no plan of this rank takes less. For what is far too large,
// of which a plan would take minutes to make.
double least_bytes(const Config& config, const JobOutline& outline, const Layout& layout, int rank);

std::string gradient_name(const std::string& tensor);  // "gradient of qkv"

}  // namespace plait::parallel
