// Runs a rank's programs on streams. Each instruction is bound once to what it works on (runtime/instruction_binder.h), and a
// step issues them in turn; the program's waits give the order.
//
// Everything a step needs is carved from one arena at construction; a step allocates nothing and never blocks the host on
// device work. (Graphs, see runtime/graph_trial.h: their first launches allocate, and changing over to them or back blocks.)
// The results of a step for the host (loss, gradient norm, exposed communication) are copied to pinned memory after it and
// picked up later.
//
// An Interpreter belongs to its rank's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/stream.h"
#include "ops/adamw.h"
#include "parallel/ledger.h"
#include "parallel/rank_plan.h"
#include "runtime/cuda_graph.h"
#include "runtime/graph_trial.h"
#include "runtime/instruction_binder.h"
#include "runtime/instruction_graphs.h"
#include "runtime/progress_board.h"
#include "runtime/rank_buffers.h"
#include "runtime/rank_groups.h"
#include "runtime/rank_life.h"
#include "runtime/step_inputs.h"
#include "runtime/step_recorder.h"
#include "runtime/tensor_reader.h"
#include "runtime/written_tensors.h"

namespace plait::runtime {

struct StepResult {
  std::int64_t update = 0;
  float loss = 0;                // mean over the global batch's targets that count, before the update
  std::int64_t loss_tokens = 0;  // those targets; 0: loss and norm are 0, and weights and moments are left as they were
  float grad_norm = 0;           // before clipping
  bool halted = false;           // this or an earlier step was not finite: weights are still those from before it
  float device_ms = 0;           // from the end of the previous step to the end of this one, on the compute stream; 0: unknown
  float exposed_comm_ms = 0;     // of the ledger, all kinds
  parallel::Ledger ledger;
};

struct EvaluationLoss {
  double loss = 0;               // mean over the targets that count; 0 where none does
  std::int64_t loss_tokens = 0;  // those targets
};

class Interpreter {
 public:
  // Aborting `life` ends everything the interpreter waits for. Those who may abort it share it.
  Interpreter(parallel::RankPlan plan, DeviceMemory& memory, RankGroups groups, std::shared_ptr<RankLife> life);
  Interpreter(const Interpreter&) = delete;  // bound instructions refer to its members
  Interpreter& operator=(const Interpreter&) = delete;

  const parallel::RankPlan& plan() const { return plan_; }
  ops::OpContext& context() { return *context_; }
  const DeviceMemory& memory() const { return memory_; }
  // The memory in which messages and gathers arrive without a copy. Links make it, so it is no part of memory().
  std::size_t linked_bytes() const {
    std::size_t bytes = buffers_.linked_bytes();
    for (const auto& [group, links] : groups_.by_links) bytes += links->linked_bytes();
    return bytes;
  }
  StreamRef compute_stream() const { return stream({parallel::StreamRole::compute, -1}); }
  const std::vector<StreamRef>& streams() const { return train_.streams; }  // those of plan().train

  // Weights from the seed, moments zero. Collective over all ranks (as are publish_weights and the programs).
  void initialize(std::uint64_t seed);

  // Does once everything that a step and an evaluation do, on arbitrary data and without messages or exchanges by links.
  // Changes no state, and ends tuning (OpContext::set_tuning). Call it before the first step, with weights in place and batch
  // sources made. The reason for it: CUDA loads a kernel when it is first launched. For that, as for allocating pinned memory,
  // it waits for all work of its GPU, holding a lock that every copy to the GPU needs. If that work waited for a message, the
  // sender could never send it. Collective; blocks.
  void synchronize_warm_up();

  // Optimizer state and weights, for checkpoints; indexed as FlatLayout::state_pieces says. Synchronize before reading them
  // on the host, and call publish_weights after writing master.
  View master() const { return buffers_.master; }
  View exp_avg() const { return buffers_.exp_avg; }
  View exp_avg_sq() const { return buffers_.exp_avg_sq; }
  // The gradients of the last step, reduced and before clipping, of the sum of all losses over tokens_per_step(); the update
  // multiplies them by tokens_per_step() / loss_tokens. Indexed by StatePiece::gradient_first.
  View kept_gradients() const { return buffers_.kept_gradients; }
  // The weights that forward and backward compute with; indexed by FlatLayout::parameter.
  View weights() const { return buffers_.weights; }
  void publish_weights();
  void synchronize();

  // Enqueues one optimizer step. At most `results_in_flight` steps may be waiting for next_result.
  static constexpr int results_in_flight = 8;
  void run_step(BatchSource& batches, const UpdateSettings& settings);
  // The same with events around everything (runtime/step_recorder.h), and waits for all of it. Expects no pending results;
  // leaves this step's.
  parallel::StepTrace synchronize_traced_step(BatchSource& batches, const UpdateSettings& settings);
  // The way in which steps are launched, whole (runtime/graph_trial.h) or by instructions (runtime/instruction_graphs.h), for
  // the user; empty on the host. A run whose speed is measured goes on until it is settled.
  std::string launch_text() const;
  bool launch_is_settled() const { return !trial_ || trial_->settled(); }
  // Turns ledgers off or on (they are on by default), to see what they cost. The same on all ranks.
  void set_ledgers(bool on) { detail_ = on ? StepRecorder::Detail::ledger : StepRecorder::Detail::ends; }
  int pending_results() const { return static_cast<int>(pending_.size()); }
  // The oldest step's result if it is there; does not block.
  std::optional<StepResult> next_result();
  // The oldest step's result; blocks until that step has run.
  StepResult synchronize_result();

  // Runs one more step with every instruction timed. Returns milliseconds by index into plan().train: from the moment when the
  // instruction before it on its stream and everything it waits for had ended, to its own end. Between its kernels and those of
  // the next stands nothing that is not there in training. The step runs behind those that are on their way; blocks until all
  // have run.
  std::vector<float> synchronize_profile(BatchSource& batches, const UpdateSettings& settings);

  // The loss of `micro_batches` micro-batches of every data-parallel rank, without touching weights. Collective; blocks.
  EvaluationLoss synchronize_evaluation(BatchSource& batches, int micro_batches);
  // The same, but returns nothing if `cut` returns true. It is asked before each micro-batch, and must answer the same on all
  // ranks.
  std::optional<EvaluationLoss> synchronize_evaluation(BatchSource& batches, int micro_batches,
                                                       const std::function<bool()>& cut);

  // The loss of every token of `micro_batches` micro-batches, in their order; nothing on ranks whose loss does not count
  // (RankPlan::counts_loss). Otherwise as synchronize_evaluation. At most 8 Mi tokens at once.
  std::vector<double> synchronize_token_losses(BatchSource& batches, int micro_batches);
  // This rank's logits of one micro-batch, [its rows, its part of the vocabulary], which stay until the next program is run;
  // nothing on ranks without the head. Collective; blocks.
  View synchronize_logits(BatchSource& batches);
  // The logits of row `row` of one micro-batch of tokens, read back to the host. Blocks. For a layout of one rank.
  std::vector<float> synchronize_logits(const std::vector<std::int32_t>& tokens, std::int64_t row);

  // Forward and backward of one step, without reductions and update, one segment or exchange at a time: observe(instruction,
  // what it wrote) is called after each. Collective; blocks, slow: for finding out where a value went wrong.
  using StepObserver = std::function<void(const parallel::Instruction&, const std::vector<WrittenTensor>&)>;
  void synchronize_step(BatchSource& batches, const StepObserver& observe);

  // The progress of the streams. May be called from any thread.
  ProgressBoard::Reading progress() const { return board_.read(); }
  // Waits until the streams are empty, and ignores their failures. Everything they wait for must have been aborted.
  void synchronize_aborted() noexcept;

  // A reader of views of this rank's memory, which must be synchronized first if other streams than compute write them.
  TensorReader reader() { return {compute_stream(), pinned_.data(), staging_bytes}; }
  // The elements of a view, read with reader(). Blocks.
  std::vector<double> synchronize_read(View view) { return reader().synchronize_read(view); }

 private:
  static constexpr std::size_t staging_bytes = std::size_t{64} << 20;
  model::SegmentActivations head_activations() const;  // of the evaluation program

  // A program whose instructions are bound to what they need.
  struct BoundInstruction {
    StreamRef stream;
    std::vector<const BoundInstruction*> waits;  // waits for `done` of these
    Issue issue;
    const CudaGraph* graph = nullptr;  // launches what `issue` enqueues, if any
    Event done;
    Event captured;           // takes the place of `done` within a graph; means nothing outside of it
    bool is_awaited = false;  // by another stream
    std::string name = {};    // for profilers
  };
  struct BoundProgram {
    const parallel::Program* program = nullptr;
    std::vector<StreamRef> streams;  // by Program::streams
    std::vector<BoundInstruction> instructions;
  };

  // Pinned memory that one step shares with the host: read and written when the streams come to it.
  struct StepMemory {
    ops::UpdateCoefficients update;  // the step's; stays until its results are there
    ops::OptimizerState state;       // the state after the step
  };

  // The host's record of one step, apart from its times.
  struct Pending {
    StepMemory* memory = nullptr;
    std::int64_t step = 0;  // counts from 0
    std::int64_t update = 0;
    bool whole = false;                    // launched as a graph
    std::optional<StagedBatches> batches;  // if steps may be launched whole
  };

  // Returns the result of `work`. If it throws, the rank's life ends, and memory that enqueued work used may be freed.
  template <typename Work>
  auto guarded(Work work) {
    return life_->run(work, [this] { synchronize_aborted(); });
  }
  StreamRef stream(const parallel::StreamSpec& spec) const;
  Pending& next_slot();  // slot of the step that is issued next
  BoundProgram bind(const parallel::Program& program);
  void fill_constants();
  void capture_instructions();
  // Issues a program in order: all of it, or only the instructions of `part`. The other instructions then do nothing, but still
  // keep the order that they give. The board counts whole runs and does not show parts.
  using Part = std::function<bool(const parallel::Instruction&)>;
  void execute(BoundProgram& bound, const StepInputs& inputs, IssueObserver& observer, const Part& part = {});
  // The part of execute() that a graph can capture. `captured`: it is being captured.
  void issue(BoundProgram& bound, const StepInputs& inputs, IssueObserver& observer, const Part& part, bool captured);
  void issue_instruction(BoundProgram& bound, int n, const StepInputs& inputs, IssueObserver& observer, const Part& part,
                         bool captured);
  // Where ranks share a device, issuing may have to wait for what other ranks issue (core/enqueued_counters.h). So each stream
  // has a thread of its own here, as streams wait independently; the threads take turns at all else. Blocks until all is
  // issued.
  void issue_by_streams(const BoundProgram& bound, const std::function<void(int)>& issue_next);
  // Launches a whole training step. issue_step() records its begin and end.
  void launch_whole(Pending& slot, BatchSource& batches, StepRecorder::Detail detail);
  void copy_state(const Pending& slot);
  // Put order between a graph, which runs on the compute stream, and what is issued to all streams.
  void order_behind_graph();
  void order_before_graph();
  // Decides, when the time has come, whether the steps from here on are launched whole. Blocks if so.
  void decide_launch();
  void issue_step(BatchSource& batches, const UpdateSettings& settings, StepRecorder::Detail detail);

  parallel::RankPlan plan_;
  DeviceMemory& memory_;
  RankGroups groups_;
  std::shared_ptr<RankLife> life_;
  // Graphs by slot and by what is recorded. This member is between groups and streams because NCCL's communicators wait until
  // the graphs that contain their calls are gone, and graphs until streams are.
  std::map<std::pair<const Pending*, StepRecorder::Detail>, CudaGraph> step_graphs_;
  std::optional<InstructionGraphs> instruction_graphs_;  // those of train_
  RankBuffers buffers_;
  ProgressBoard board_;
  Buffer pinned_;                                                   // staging, then each slot's StepMemory
  std::map<std::pair<parallel::StreamRole, int>, Stream> streams_;  // by role and peer
  std::optional<Stream> idle_;                                      // a stream without work
  std::optional<Event> order_;                                      // carries order from stream to stream
  bool graph_ran_last_ = false;
  std::unique_ptr<ops::OpContext> context_;
  std::optional<StepRecorder> recorder_;
  StepRecorder::Detail detail_ = StepRecorder::Detail::ledger;
  std::optional<model::Transformer> transformer_;
  std::optional<BindingContext> binding_;

  BoundProgram train_, evaluate_;
  std::optional<GraphTrial> trial_;  // on GPUs
  std::vector<Pending> slots_;
  std::deque<int> pending_;  // indices into slots_, oldest first
  std::int64_t steps_issued_ = 0;
};

}  // namespace plait::runtime
