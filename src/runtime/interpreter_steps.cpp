// Training steps of the interpreter, issued instruction by instruction or launched whole, and their results for the host.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "core/enqueued_counters.h"
#include "core/error.h"
#include "runtime/device_activities.h"
#include "runtime/interpreter.h"

namespace plait::runtime {

void Interpreter::execute(BoundProgram& bound, const StepInputs& inputs, IssueObserver& observer, const Part& part) {
  guarded([&] {
    life_->check();
    if (graph_ran_last_) order_behind_graph();
    if (!part) board_.begin(*bound.program);
    issue(bound, inputs, observer, part, false);
  });
}

void Interpreter::issue(BoundProgram& bound, const StepInputs& inputs, IssueObserver& observer, const Part& part,
                        bool captured) {
  const auto issue_next = [&](int n) { issue_instruction(bound, n, inputs, observer, part, captured); };
  if (memory_.device().shared) return issue_by_streams(bound, issue_next);
  for (int n = 0; n < static_cast<int>(bound.instructions.size()); ++n) issue_next(n);
}

void Interpreter::issue_by_streams(const BoundProgram& bound, const std::function<void(int)>& issue_next) {
  std::mutex turns;
  std::condition_variable changed;
  std::vector<bool> issued(bound.instructions.size());
  std::exception_ptr failure;
  const auto issue_stream = [&](int stream) {
    make_current(memory_.device());
    Turn turn(turns);
    for (int n = 0; n < static_cast<int>(issued.size()) && !failure; ++n) {
      if (bound.program->at(n).stream != stream) continue;
      // Those later in the program are of the run before.
      const auto has_event = [&](int awaited) { return awaited > n || issued[static_cast<std::size_t>(awaited)]; };
      changed.wait(turn.lock(), [&] { return failure || std::ranges::all_of(bound.program->at(n).waits, has_event); });
      if (failure) return;
      issue_next(n);
      issued[static_cast<std::size_t>(n)] = true;
      changed.notify_all();
    }
  };
  const auto guarded_stream = [&](int stream) {
    try {
      issue_stream(stream);
    } catch (...) {
      {
        std::lock_guard lock(turns);
        if (!failure) failure = std::current_exception();
      }
      changed.notify_all();
      groups_.abort_action()();  // else the others would wait for counters
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int stream = 0; stream < static_cast<int>(bound.streams.size()); ++stream)
      threads.emplace_back(guarded_stream, stream);
  }
  if (failure) std::rethrow_exception(failure);
}

void Interpreter::issue_instruction(BoundProgram& bound, int n, const StepInputs& inputs, IssueObserver& observer,
                                    const Part& part, bool captured) {
  const parallel::Program& program = *bound.program;
  BoundInstruction& instruction = bound.instructions[static_cast<std::size_t>(n)];
  const StreamRef s = instruction.stream;
  Event& end = captured ? instruction.captured : instruction.done;
  const bool done = !part || part(program.at(n));
  const ProfilerRange range(instruction.name.c_str());
  if (done) observer.waiting(n, s);
  for (const BoundInstruction* awaited : instruction.waits) {
    if (!captured) s.wait(awaited->done);
    // Those of the step before, which come later in the program, are over when the graph begins.
    if (captured && awaited < &instruction) s.wait(awaited->captured);
  }
  if (!done) {  // others rely on what it would have waited for
    if (instruction.is_awaited) s.record(end);
    return;
  }
  observer.started(n, s);
  if (instruction.graph && !captured && !observer.observes_kernels()) {
    instruction.graph->launch(s, instruction.graph->nodes());
  } else {
    instruction.issue(inputs, observer.ready(n));
  }
  const bool observed = observer.observes_end(n), shown = !part && board_.shows(n);
  const auto note = [&](StreamRef aside) {
    if (observed) observer.done(n, aside);
    if (part) return;
    if (captured)
      board_.captured(aside, program, n);
    else
      board_.enqueued(aside, program, n);
  };
  // A host's threads take turns, so that others could end before this end is noted: there it is noted before they go on. On a
  // GPU a note holds up its stream, and comes after.
  const bool notes_first = !s.device().is_cuda();
  if (notes_first) note(s);
  if (instruction.is_awaited || observed || shown) s.record(end);
  if (!notes_first) note(observed || shown ? s.aside(end) : s);
}

void Interpreter::order_behind_graph() {
  const StreamRef compute = compute_stream();
  compute.record(*order_);
  for (const auto& [spec, s] : streams_) {
    if (s.ref().native() != compute.native()) s.ref().wait(*order_);
  }
  graph_ran_last_ = false;
}

void Interpreter::order_before_graph() {
  const StreamRef compute = compute_stream();
  const auto put_before = [&](StreamRef s) {
    if (!s || s.native() == compute.native()) return;
    s.record(*order_);
    compute.wait(*order_);
  };
  for (const auto& [spec, s] : streams_) {
    put_before(s.ref());
    put_before(s.ref().companion());
  }
}

void Interpreter::copy_state(const Pending& slot) {
  compute_stream().copy(&slot.memory->state, buffers_.optimizer_state.data, sizeof(ops::OptimizerState));
}

void Interpreter::launch_whole(Pending& slot, BatchSource& batches, StepRecorder::Detail detail) {
  guarded([&] {
    life_->check();
    const ProfilerRange range("step as one launch");
    const StreamRef compute = compute_stream();
    slot.batches->fill(batches, *idle_);
    if (!graph_ran_last_) order_before_graph();
    board_.begin(plan_.train);
    auto graph = step_graphs_.find({&slot, detail});
    if (graph == step_graphs_.end()) {
      // The reason is that of synchronize_warm_up: when CUDA allocates, it may wait for work of this GPU, which may wait for a
      // peer that needs a lock held meanwhile. So no work may be left.
      synchronize();
      std::vector<StreamRef> others = train_.streams;
      std::erase_if(others, [&](StreamRef s) { return s.native() == compute.native(); });
      CudaGraph captured(compute, others, [&] {
        issue(train_, {*slot.batches, &slot.memory->update}, *recorder_, {}, true);
        copy_state(slot);
      });
      graph = step_graphs_.emplace(std::pair(&slot, detail), std::move(captured)).first;
    }
    board_.launched(plan_.train);
    graph->second.launch(compute);
    graph_ran_last_ = true;
  });
}

void Interpreter::decide_launch() {
  const std::optional<double> milliseconds = trial_ ? trial_->due(steps_issued_) : std::nullopt;
  if (!milliseconds) return;
  synchronize();
  trial_->decide(*milliseconds);
  if (!trial_->may_be_whole()) step_graphs_.clear();
}

void Interpreter::issue_step(BatchSource& batches, const UpdateSettings& settings, StepRecorder::Detail detail) {
  Pending& slot = next_slot();
  const StreamRef compute = compute_stream();
  slot.memory->update = ops::update_coefficients(settings);
  slot.whole = trial_ && detail != StepRecorder::Detail::everything && trial_->is_whole(steps_issued_);
  recorder_->begin(steps_issued_, compute, detail);
  if (slot.whole) {
    launch_whole(slot, batches, detail);
  } else {
    execute(train_, {batches, &slot.memory->update}, *recorder_);
    copy_state(slot);
  }
  recorder_->end(compute);
  slot.step = steps_issued_++;
  slot.update = settings.update;
  pending_.push_back(static_cast<int>(&slot - slots_.data()));
}

void Interpreter::run_step(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_results() < results_in_flight, "Interpreter::run_step: take results first");
  decide_launch();
  issue_step(batches, settings, detail_);
}

parallel::StepTrace Interpreter::synchronize_traced_step(BatchSource& batches, const UpdateSettings& settings) {
  require(pending_.empty(), "Interpreter::synchronize_traced_step: take results first");
  issue_step(batches, settings, StepRecorder::Detail::everything);
  synchronize();
  return recorder_->synchronize_trace(steps_issued_ - 1, compute_stream());
}

std::optional<StepResult> Interpreter::next_result() {
  if (pending_.empty() || !recorder_->is_complete(slots_[static_cast<std::size_t>(pending_.front())].step)) return std::nullopt;
  return synchronize_result();
}

StepResult Interpreter::synchronize_result() {
  require(!pending_.empty(), "Interpreter::synchronize_result: no step is pending");
  const Pending& slot = slots_[static_cast<std::size_t>(pending_.front())];
  pending_.pop_front();
  guarded([&] {
    recorder_->synchronize(slot.step);
    // A failed stream comes to the end of the step too, with a meaningless result.
    for (const auto& [spec, s] : streams_) s.ref().rethrow_failure();
    life_->check();
  });
  StepRecorder::Result times = recorder_->take(slot.step);
  if (trial_) trial_->add(slot.step, slot.whole, times.device_ms);
  return {.update = slot.update,
          .loss = slot.memory->state.loss,
          .loss_tokens = plan_.tokens_per_step() - std::llround(slot.memory->state.ignored),
          .grad_norm = slot.memory->state.grad_norm,
          .halted = slot.memory->state.halted != 0.0f,
          .device_ms = static_cast<float>(times.device_ms),
          .exposed_comm_ms = static_cast<float>(times.ledger.exposed_ms()),
          .ledger = std::move(times.ledger)};
}

}  // namespace plait::runtime
