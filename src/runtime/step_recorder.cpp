#include "runtime/step_recorder.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "parallel/program_set.h"

namespace plait::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double not_yet = std::numeric_limits<double>::infinity();

double milliseconds(const Event& from, const Event& to) { return static_cast<double>(elapsed_ms(from, to)); }

}  // namespace

StepRecorder::StepRecorder(const parallel::Program& program, const parallel::Layout& layout, int rank, Device device, int slots,
                           bool links_announce)
    : program_(program), maker_(program, layout, rank), device_(device) {
  for (int s = 0; s < slots; ++s) {
    slots_.push_back({.begin = Event(device, EventTiming::on), .end = Event(device, EventTiming::on), .times = {}});
    std::vector<Times>& times = slots_.back().times;
    times.resize(program.instructions.size());
    const auto always = [&](std::optional<Timed>& timed) {
      if (!timed) timed = Timed{Event(device, EventTiming::on), true};
    };
    for (const int n : maker_.waits()) {
      always(times[static_cast<std::size_t>(n)].waiting);
      always(times[static_cast<std::size_t>(n)].started);
    }
    for (const int n : maker_.communication()) {
      Times& t = times[static_cast<std::size_t>(n)];
      always(t.started);
      always(t.done);
      if (links_announce && parallel::is_receive(program.at(n).kind)) always(t.ready);
    }
  }
}

void StepRecorder::make_all_events(Slot& slot) {
  for (Times& t : slot.times) {
    for (std::optional<Timed>* timed : {&t.waiting, &t.started, &t.done}) {
      if (!*timed) *timed = Timed{Event(device_, EventTiming::on), false};
    }
  }
}

void StepRecorder::begin(std::int64_t step, StreamRef compute, Detail detail) {
  require(!current_, "StepRecorder::begin: within a step");
  require(detail != Detail::everything || step == next_, "StepRecorder::begin: take the steps before a traced one first");
  current_ = &slot_of(step);
  current_->step = step;
  current_->detail = detail;
  if (detail == Detail::everything) make_all_events(*current_);
  compute.record(current_->begin);
}

void StepRecorder::record(std::optional<Timed>& timed, StreamRef stream) {
  if (!timed || current_->detail == Detail::ends) return;
  if (timed->always || current_->detail == Detail::everything) stream.record(timed->event);
}

void StepRecorder::waiting(int instruction, StreamRef stream) {
  record(current_->times[static_cast<std::size_t>(instruction)].waiting, stream);
}

void StepRecorder::started(int instruction, StreamRef stream) {
  record(current_->times[static_cast<std::size_t>(instruction)].started, stream);
}

void StepRecorder::done(int instruction, StreamRef stream) {
  record(current_->times[static_cast<std::size_t>(instruction)].done, stream);
}

Event* StepRecorder::ready(int instruction) {
  std::optional<Timed>& ready = current_->times[static_cast<std::size_t>(instruction)].ready;
  return ready && current_->detail != Detail::ends ? &ready->event : nullptr;
}

void StepRecorder::end(StreamRef compute) {
  compute.record(current_->end);
  current_ = nullptr;
}

bool StepRecorder::is_complete(std::int64_t step) const { return slot_of(step).end.is_complete(); }
void StepRecorder::synchronize(std::int64_t step) const { slot_of(step).end.synchronize(); }

parallel::CommunicationTimes StepRecorder::read(const Slot& slot, int instruction) const {
  const Times& t = slot.times[static_cast<std::size_t>(instruction)];
  parallel::CommunicationTimes run{not_yet, not_yet, std::nullopt};
  // The end of the step is that of its compute stream; others may have something left to do.
  if (t.done->event.is_complete()) run.end = milliseconds(slot.begin, t.done->event);
  const bool over = run.end < not_yet;
  if (over || t.started->event.is_complete()) run.begin = std::min(milliseconds(slot.begin, t.started->event), run.end);
  if (t.ready && (over || t.ready->event.is_complete())) run.ready = milliseconds(slot.begin, t.ready->event);
  return run;
}

StepRecorder::Result StepRecorder::take(std::int64_t step) {
  const Slot& slot = slot_of(step);
  require(step == next_ && slot.step == step, "StepRecorder::take: steps are taken in order, each once");
  ++next_;
  Result result;
  if (step > 0) result.device_ms = milliseconds(slot_of(step - 1).end, slot.end);
  if (slot.detail == Detail::ends) {
    previous_.clear();
    result.ledger.step_ms = result.ledger.compute_ms = milliseconds(slot.begin, slot.end);
    return result;
  }
  parallel::StepTimes times = read(slot);
  result.ledger = maker_.make(times);
  previous_ = std::move(times.communication);
  return result;
}

parallel::StepTimes StepRecorder::read(const Slot& slot) {
  parallel::StepTimes times;
  times.end = milliseconds(slot.begin, slot.end);
  for (const int n : maker_.communication()) times.communication.push_back(read(slot, n));
  for (const int n : maker_.waits()) {
    const Times& t = slot.times[static_cast<std::size_t>(n)];
    times.waits.push_back({milliseconds(slot.begin, t.waiting->event), milliseconds(slot.begin, t.started->event)});
  }
  times.previous = std::move(previous_);
  if (!times.previous.empty()) {
    const Slot& before = slot_of(slot.step - 1);
    const double shift = milliseconds(before.begin, slot.begin);
    for (std::size_t c = 0; c < times.previous.size(); ++c) {
      parallel::CommunicationTimes& run = times.previous[c];
      if (run.end == not_yet) run = read(before, maker_.communication()[c]);
      run.begin -= shift, run.end -= shift;
      if (run.ready) *run.ready -= shift;
    }
  }
  return times;
}

parallel::StepTrace StepRecorder::synchronize_trace(std::int64_t step, StreamRef compute) {
  const Slot& slot = slot_of(step);
  require(slot.step == step && slot.detail == Detail::everything, "StepRecorder: the step was not traced");
  for (const Times& t : slot.times) t.done->event.synchronize();

  // An event whose time on the host's clock is known: the best of several, as the host may be interrupted.
  constexpr int tries = 16;
  Event anchor(device_, EventTiming::on);
  parallel::StepTrace trace;
  trace.step = step;
  double since_begin = 0;
  auto narrowest = Clock::duration::max();
  for (int i = 0; i < tries; ++i) {
    const auto before = Clock::now();
    compute.record(anchor);
    anchor.synchronize();
    const auto after = Clock::now();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    trace.origin = before + narrowest / 2;
    since_begin = milliseconds(slot.begin, anchor);
  }
  trace.origin -= std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(since_begin));

  const auto at = [&](const Event& event) { return milliseconds(slot.begin, event); };
  trace.end = at(slot.end);
  for (std::size_t n = 0; n < slot.times.size(); ++n) {
    const Times& t = slot.times[n];
    trace.slices.push_back({static_cast<int>(n), at(t.waiting->event), at(t.started->event), at(t.done->event), std::nullopt});
    if (t.ready) trace.slices.back().ready = at(t.ready->event);
  }
  return trace;
}

}  // namespace plait::runtime
