// Times training steps with events, and makes ledgers (parallel/ledger.h) and traces from them.
//
// Times are taken beside the streams (StreamRef::aside), and only at the ends of instructions: an instruction begins when the
// last of what it waits for has ended. Traced steps have events around everything. After the first steps, only traced ones
// create new events.
//
// Belongs to its rank's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.h"
#include "parallel/ledger.h"
#include "parallel/program/program.h"
#include "parallel/trace_events.h"
#include "runtime/step_inputs.h"

namespace plait::runtime {

class StepRecorder final : public IssueObserver {
 public:
  enum class Detail {
    ends,  // only begin and end of the step: no ledger, to see the cost of ledgers
    ledger,
    everything,  // for a trace
  };

  // `slots`: one more than the number of steps whose times may be unread. `program` must outlive this. `links_announce`:
  // receives know when their sender was ready.
  StepRecorder(const parallel::Program& program, const parallel::Layout& layout, int rank, Device device, int slots,
               bool links_announce);

  // begin and end enclose all instructions of a step, in order. `step` counts from 0. A step with Detail::everything may begin
  // only when all earlier steps have been taken.
  void begin(std::int64_t step, StreamRef compute, Detail detail = Detail::ledger);
  void waiting(int instruction, StreamRef stream) override;
  void started(int instruction, StreamRef stream) override;
  void done(int instruction, StreamRef aside) override;
  bool observes_end(int instruction) const override;
  bool observes_kernels() const override { return current_->detail == Detail::everything; }
  Event* ready(int instruction) override;
  void end(StreamRef compute);

  bool is_complete(std::int64_t step) const;
  void synchronize(std::int64_t step) const;

  // The times of a step. Steps are taken when they are complete, each once and in order.
  struct Result {
    double device_ms = 0;  // since the end of the step before; 0 for the first
    parallel::Ledger ledger;
  };
  Result take(std::int64_t step);

  // The trace of a step recorded with Detail::everything, until a later step reuses its slot. Blocks until the whole step has
  // run on all streams.
  parallel::StepTrace synchronize_trace(std::int64_t step, StreamRef compute);

 private:
  struct Timed {
    Event event;
    bool always = false;  // timed in every step; else only in traced ones
  };
  struct Times {
    std::optional<Timed> waiting, started, done, ready;  // the events of one instruction
  };
  struct Slot {
    std::int64_t step = -1;
    Detail detail = Detail::ledger;
    Event begin, end;
    std::vector<Times> times;  // by instruction
  };

  // Times by instruction, in milliseconds since the step began: when its stream came to it, its waits were over, and it ended.
  // Infinite: not yet. An instruction whose end is not timed ends as it begins.
  struct Timeline {
    std::vector<double> reached, begin, end;
    bool is_known() const { return !end.empty(); }
    void shift(double milliseconds);
  };

  Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }
  const Slot& slot_of(std::int64_t step) const { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }
  void make_all_events(Slot& slot);
  bool is_recorded(const std::optional<Timed>& timed) const;  // in the current step
  void record(Event& timed, StreamRef stream);
  Timeline read_timeline(const Slot& slot, const Timeline& before) const;
  parallel::CommunicationTimes run_of(const Slot& slot, const Timeline& timeline, int instruction) const;
  parallel::StepTimes read(const Slot& slot);

  const parallel::Program& program_;
  parallel::LedgerMaker maker_;
  Device device_;
  Event passing_;  // carries order to a companion stream
  std::vector<Slot> slots_;
  Slot* current_ = nullptr;  // between begin and end

  std::int64_t next_ = 0;        // the next step to be taken
  Timeline last_, second_last_;  // timelines of the last steps taken, both relative to the beginning of the last
};

}  // namespace plait::runtime
