// Runs a rank's programs on streams: one switch over instructions, ordering from the program's waits.
//
// Everything a step needs is carved from one arena at construction; a step allocates nothing and never blocks the host on
// device work. What the host wants to know about a step (loss, gradient norm, exposed communication) is copied to pinned
// memory behind it and picked up later.
//
// An Interpreter belongs to its rank's thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/device.h"
#include "core/stream.h"
#include "ops/adamw.h"
#include "parallel/rank_plan.h"

namespace plait::parallel {

// Tokens and targets of one micro-batch in pinned host memory, i32, [rows] each.
struct HostBatch {
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
};

// Where micro-batches come from, in program order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual HostBatch next() = 0;
  // The batch of the last next() may be overwritten once everything enqueued on `stream` so far has run.
  virtual void release(StreamRef stream) = 0;
};

// Optimizer settings of one step; `update` counts from 1.
struct UpdateSettings {
  std::int64_t update = 1;
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f, clip = 1.0f;
};

struct StepResult {
  std::int64_t update = 0;
  float loss = 0;               // mean over the global batch, before the update
  float grad_norm = 0;          // before clipping
  bool halted = false;          // this or an earlier step was not finite: weights are those before that step
  float device_ms = 0;          // from the end of the previous step to the end of this one, on the compute stream; 0: unknown
  float exposed_comm_ms = 0;    // time the compute stream stood waiting for the reduce stream
};

// A place in a program where a tensor first held a value that is not finite.
struct NonFinite {
  int instruction = -1;
  std::string where;  // "forward micro-batch 0 block 3: qkv"
};

class Interpreter {
 public:
  // `data_group`: this rank's data-parallel group, alive as long as the interpreter.
  Interpreter(RankPlan plan, DeviceMemory& memory, comm::Communicator& data_group);
  ~Interpreter();

  const RankPlan& plan() const { return plan_; }
  ops::OpContext& context() { return *context_; }
  const DeviceMemory& memory() const { return memory_; }
  StreamRef compute_stream() const { return stream(StreamRole::compute); }

  // Weights from the seed, moments zero. Collective over the data group (as are publish_weights and the programs).
  void initialize(std::uint64_t seed);

  // Optimizer state and weights, for checkpoints; indexed as FlatLayout::state_pieces says. Synchronize before reading them
  // on the host, and call publish_weights after writing master.
  View master() const { return master_; }
  View exp_avg() const { return exp_avg_; }
  View exp_avg_sq() const { return exp_avg_sq_; }
  void publish_weights();
  void synchronize();

  // Enqueues one optimizer step. At most `results_in_flight` steps may be waiting for next_result.
  static constexpr int results_in_flight = 8;
  void run_step(BatchSource& batches, const UpdateSettings& settings);
  int pending_results() const { return static_cast<int>(pending_.size()); }
  // The oldest step's result if it is there; does not block.
  std::optional<StepResult> next_result();
  // The oldest step's result; blocks until that step has run.
  StepResult synchronize_result();

  // One more step with every instruction timed by itself: milliseconds by index into plan().train, waits included. Blocks;
  // expects no pending results.
  std::vector<float> synchronize_profile(BatchSource& batches, const UpdateSettings& settings);

  // Mean loss over `micro_batches` micro-batches of every rank of the data group, without touching weights. Blocks.
  double synchronize_evaluation(BatchSource& batches, int micro_batches);

  // Logits [rows, vocab padded] of one micro-batch of tokens, f32 or f64, read back to the host. Blocks.
  std::vector<float> synchronize_logits(const std::vector<std::int32_t>& tokens, std::int64_t row);

  // Runs forward and backward of one step again without communication and update, looking at every tensor after every
  // instruction. Blocks, slow: for a step that halted. nullopt if this rank's tensors are all finite.
  std::optional<NonFinite> synchronize_find_non_finite(BatchSource& batches);

 private:
  struct Pending;

  StreamRef stream(StreamRole role) const;
  View item(const std::string& name, DType type, Shape shape) const;
  View slice(View flat, Range range) const;
  void bind_memory();
  void fill_constants();
  void prepare(const Program& program, std::vector<std::optional<Event>>& events);
  // Issues a whole program, in order. observe(index, moment) is called for each instruction before it waits, between waits
  // and work, and after its work. `accumulate` adds the evaluation's loss to what is there.
  enum class Moment { waiting, started, done };
  template <typename Observer>
  void execute(const Program& program, std::vector<std::optional<Event>>& events, BatchSource& batches,
               const UpdateSettings& settings, bool train, bool accumulate, Observer observe);
  void issue(const Instruction& instruction, BatchSource& batches, const UpdateSettings& settings, bool train, bool accumulate);
  model::Transformer::Backward backward_arguments(const Instruction& instruction);
  View block_input(const Instruction& instruction);
  std::vector<model::NamedView> written_by(const Instruction& instruction);
  bool synchronize_is_finite(View view);

  RankPlan plan_;
  DeviceMemory& memory_;
  comm::Communicator& data_group_;
  Buffer arena_;
  Buffer pinned_;  // StepSlots, then staging
  std::array<std::optional<Stream>, stream_roles> streams_;
  std::unique_ptr<ops::OpContext> context_;
  std::optional<model::Transformer> transformer_;

  View weights_, gradients_, master_, exp_avg_, exp_avg_sq_, table_, scalars_, evaluation_loss_, optimizer_state_;
  std::vector<model::BlockParameters> block_weights_, block_gradients_;
  std::vector<std::vector<model::BlockActivations>> activations_;  // [block][slot]
  model::BlockGradients block_scratch_;
  std::vector<View> residual_gradients_;
  std::vector<model::Batch> batch_slots_;
  std::vector<View> norm_ranges_;  // this rank's shards of all gradients, neighbours merged

  std::vector<std::optional<Event>> train_events_, evaluate_events_;  // of instructions that another stream waits for
  std::vector<Pending> slots_;
  std::deque<int> pending_;  // indices into slots_, oldest first
  std::int64_t steps_issued_ = 0;
};

}  // namespace plait::parallel
