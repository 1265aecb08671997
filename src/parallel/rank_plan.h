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

// The way in which the collectives of one kind of group are carried out, and the reason for the user. The planner, the memory
// plan and the ranks follow this choice. Ranks that cannot make their links say so and end (comm/p2p/link_communicator.h); they
// do not fall back.
struct CollectiveChoice {
  CollectiveWay way = CollectiveWay::library;
  std::string reason = {};
  // For links. A kernel makes the pushes to each other rank up to so many bytes; copy engines make longer ones. The first limit
  // is for any collective, longest_beside() for an exchange with so many quarters of blocks computed beside it
  // (Instruction::beside).
  std::size_t longest_by_kernel = 0;
  std::size_t longest_beside(int quarters) const;
  double most_beside_kernel = 0;  // bytes times quarters, for longest_beside()
};
// Of all tensor groups of a job: as asked for, else as decided.
CollectiveChoice choose_exchanges(const Config& config, const Decision& decision, int tensor_ranks, DeviceKind device_kind);
// Of all groups of data-parallel replicas, for their gradients and weights: the same, but without ZeRO the library by itself.
// On 4 × H200 a step of GPT-2 124M with it took 0.98 of the time by links, and 1.02 without (docs/performance.md).
CollectiveChoice choose_reductions(const Config& config, const Decision& decision, int data_ranks, DeviceKind device_kind);

// The passes that are braided (comm.braid), and why, for the user.
struct BraidChoice {
  Braid way = Braid::none;
  std::string reason;
};
// The choice for a job that breaks no rule and whose facts are all known. Nothing about a machine enters it, so all ranks and
// the planner make the same choice.
BraidChoice choose_braids(const JobFacts& facts);

struct RankPlan {
  Layout layout;
  int rank = 0;
  DeviceKind device_kind = DeviceKind::host;
  model::SegmentSizes sizes;
  DType gradient_type = DType::f32;
  DType master_type = DType::f32;  // type of master weights
  DType moment_type = DType::f32;  // type of AdamW's moments
  CollectiveChoice exchanges;      // for its tensor group, if that has several ranks
  CollectiveChoice reductions;     // for its group of replicas, likewise
  BraidChoice braids;
  bool all_by_links = false;             // ranks may share a device, which the library does not allow (launch.ranks_per_device)
  bool deterministic = false;            // results have the same bits in every run, on GPUs too
  GraphUse graph = GraphUse::automatic;  // a step as one launch
  int zero = 0;                          // sharded over the data axis: 1 optimizer state, 2 gradients as well
  bool separate_master = true;           // false: the weights are the master weights
  int micro_batches = 1;                 // per data-parallel rank and step, each of sizes.micro_batch: halves if cut
  std::int64_t global_batch = 0;         // sequences per step, all ranks
  std::int64_t sequence_length = 0;      // tokens per sequence
  Schedule schedule;                     // of all pipeline ranks
  std::vector<SegmentRange> stages;      // of the model, in order
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
  // True if the segment's norm is computed again in backward.
  bool recomputes_norm(int segment) const {
    const model::SegmentKind kind = sizes.shape.kind(segment);
    return sizes.recompute != model::Recompute::none && has_norm(kind) && has_output(kind);
  }
  // True for the rank that stands for all that hold the same parameters, where each parameter counts once.
  bool is_first_replica() const { return layout.coordinate(rank, replica_axes) == 0; }
  // This rank's share of the loss counts: one tensor-parallel rank stands for its group.
  bool counts_loss() const { return holds(sizes.shape.head_segment()) && sizes.split.rank == 0; }
  std::int64_t tokens_per_step() const { return global_batch * sequence_length; }  // of all ranks
  bool has_barrier() const;                                                        // in its training program
  // True if the collectives of `group` go by links (comm/p2p/link_communicator.h). Their messages have at most slice_bytes()
  // and land in landing_bytes() of memory, or in less where messages come through slots in host memory.
  bool goes_by_links(const GroupStream& group) const;
  std::size_t slice_bytes(const GroupStream& group) const;
  std::size_t landing_bytes(const GroupStream& group) const;      // 0 unless it goes by links
  std::size_t longest_by_kernel(const GroupStream& group) const;  // for any collective
  // The reason why its steps on a GPU cannot be CUDA graphs; empty if they can.
  std::string graph_obstacle() const;
  DType scalar_type() const { return sizes.compute == DType::f64 ? DType::f64 : DType::f32; }
  model::ModelShape local_shape() const { return sizes.shape.local(sizes.split.size); }
};

// The groups, by stream, that the rank has communicators for, in the order in which all ranks make them. Those with the same
// stream and the same ranks share a communicator.
std::vector<GroupStream> group_streams_of(const RankPlan& plan);

// The members of every library communicator of this rank that has several ranks, in that order.
std::vector<std::vector<int>> communicators_of(const RankPlan& plan);

// A buffer that messages are received into, with their sender and their place in it (under sequence parallelism a received
// gradient has room for the other ranks' rows too).
struct ReceivedBuffer {
  BufferId buffer;
  int sender = 0;                // pipeline rank
  Shape shape;                   // rows, hidden
  std::int64_t message_row = 0;  // the first of this rank's rows
};
std::vector<ReceivedBuffer> received_buffers(const RankPlan& plan);

// The type of master weights, on any device. Checkpoints hold master weights and moments in this type.
DType master_type(const Config& config);
// The type of the moments in a rank's memory.
DType moment_type(const Config& config);
// The type that precision.compute names, or stands for on that kind of device. ConfigError if the device has no such
// arithmetic.
DType compute_type(const Config& config, DeviceKind kind);

// The segments of each stage of `map`: as parallel.stages says, or cut by FLOPs. ConfigError if there are too few segments.
std::vector<SegmentRange> stages_of(const Config& config, const model::ModelShape& shape, const StageMap& map,
                                    StageSplits* splits = nullptr);

// The part that the plans of all ranks of a job have in common. It has no parameters, programs or memory, so it is quick to
// make. If micro-batches are cut in halves (choose_braids), all of it describes the halves.
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
// A lower bound for the bytes of a rank's plan: its weights, gradients and optimizer state. For models that are far too large,
// whose plan would take minutes to make.
double least_bytes(const Config& config, const JobOutline& outline, const Layout& layout, int rank);

std::string gradient_name(const std::string& tensor);  // "gradient of qkv"

}  // namespace plait::parallel
