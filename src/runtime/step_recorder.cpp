#include "runtime/step_recorder.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "parallel/program/program_set.h"

namespace plait::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double not_yet = std::numeric_limits<double>::infinity();

double milliseconds(const Event& from, const Event& to) { return static_cast<double>(elapsed_ms(from, to)); }

}  // namespace

StepRecorder::StepRecorder(const parallel::Program& program, const parallel::Layout& layout, int rank, Device device, int slots,
                           bool links_announce)
    : program_(program), maker_(program, layout, rank), device_(device), passing_(device) {
  for (int s = 0; s < slots; ++s) {
    slots_.push_back({.begin = Event(device, EventTiming::on), .end = Event(device, EventTiming::on), .times = {}});
    std::vector<Times>& times = slots_.back().times;
    times.resize(program.instructions.size());
    const auto always = [&](std::optional<Timed>& timed) {
      if (!timed) timed = Timed{Event(device, EventTiming::on), true};
    };
    const auto time_begin = [&](int n) {
      for (const int awaited : maker_.awaited(n)) always(times[static_cast<std::size_t>(awaited)].done);
      always(times[static_cast<std::size_t>(maker_.before(n))].done);
    };
    for (const int n : maker_.waits()) time_begin(n);
    for (const int n : maker_.communication()) {
      time_begin(n);
      Times& t = times[static_cast<std::size_t>(n)];
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
  record(current_->begin, compute);
}

bool StepRecorder::is_recorded(const std::optional<Timed>& timed) const {
  return timed && (current_->detail == Detail::everything || (timed->always && current_->detail == Detail::ledger));
}

void StepRecorder::record(Event& timed, StreamRef stream) {
  stream.record(passing_);
  stream.aside(passing_).record(timed);
}

void StepRecorder::waiting(int instruction, StreamRef stream) {
  std::optional<Timed>& waiting = current_->times[static_cast<std::size_t>(instruction)].waiting;
  if (is_recorded(waiting)) record(waiting->event, stream);
}

void StepRecorder::started(int instruction, StreamRef stream) {
  std::optional<Timed>& started = current_->times[static_cast<std::size_t>(instruction)].started;
  if (is_recorded(started)) record(started->event, stream);
}

bool StepRecorder::observes_end(int instruction) const {
  return is_recorded(current_->times[static_cast<std::size_t>(instruction)].done);
}

void StepRecorder::done(int instruction, StreamRef aside) {
  aside.record(current_->times[static_cast<std::size_t>(instruction)].done->event);
}

Event* StepRecorder::ready(int instruction) {
  std::optional<Timed>& ready = current_->times[static_cast<std::size_t>(instruction)].ready;
  return ready && current_->detail != Detail::ends ? &ready->event : nullptr;
}

void StepRecorder::end(StreamRef compute) {
  record(current_->end, compute);
  current_ = nullptr;
}

bool StepRecorder::is_complete(std::int64_t step) const { return slot_of(step).end.is_complete(); }
void StepRecorder::synchronize(std::int64_t step) const { slot_of(step).end.synchronize(); }

void StepRecorder::Timeline::shift(double milliseconds) {
  for (std::vector<double>* times : {&reached, &begin, &end}) {
    for (double& time : *times) time += milliseconds;
  }
}

StepRecorder::Timeline StepRecorder::read_timeline(const Slot& slot, const Timeline& before) const {
  const std::size_t count = program_.instructions.size();
  const double step_end = milliseconds(slot.begin, slot.end);
  // step_end is the end of the compute stream. Other streams may still have something left, except what the compute stream
  // waited for; the times of that can come at any moment, so wait for them. If an event is complete, so are those before it on
  // its stream.
  for (const int n : maker_.waits()) {
    for (const int awaited : program_.at(n).waits) {
      if (awaited < n) slot.times[static_cast<std::size_t>(awaited)].done->event.synchronize();
    }
  }
  std::vector<double> taken(count, not_yet);
  std::vector<bool> over(program_.streams.size(), false);
  for (std::size_t n = count; n-- > 0;) {
    const std::optional<Timed>& done = slot.times[n].done;
    if (!done) continue;
    const auto stream = static_cast<std::size_t>(program_.instructions[n].stream);
    if (!over[stream]) over[stream] = done->event.is_complete();
    if (over[stream]) taken[n] = milliseconds(slot.begin, done->event);
  }

  // Times are taken a little late, some later than others, so each is moved behind the times that it cannot precede.
  Timeline timeline;
  std::vector<std::optional<double>> free(program_.streams.size());
  for (std::size_t n = 0; n < count; ++n) {
    const parallel::Instruction& i = program_.instructions[n];
    const bool computes = program_.stream_of(i).role == parallel::StreamRole::compute;
    const double latest = computes ? step_end : not_yet;
    std::optional<double>& stream = free[static_cast<std::size_t>(i.stream)];
    if (!stream) {
      const auto last = static_cast<std::size_t>(maker_.before(static_cast<int>(n)));
      stream = !computes && before.is_known() ? before.end[last] : 0;
    }
    double begin = *stream;
    for (const int awaited : i.waits) {
      const auto a = static_cast<std::size_t>(awaited);
      if (a < n)
        begin = std::max(begin, timeline.end[a]);
      else if (before.is_known())
        begin = std::max(begin, before.end[a]);
    }
    begin = std::min(begin, latest);
    timeline.reached.push_back(*stream);
    timeline.begin.push_back(begin);
    stream = slot.times[n].done ? std::min(std::max(begin, taken[n]), latest) : begin;
    timeline.end.push_back(*stream);
  }
  return timeline;
}

parallel::CommunicationTimes StepRecorder::run_of(const Slot& slot, const Timeline& timeline, int instruction) const {
  const auto n = static_cast<std::size_t>(instruction);
  parallel::CommunicationTimes run{timeline.begin[static_cast<std::size_t>(maker_.first_of(instruction))], timeline.end[n],
                                   std::nullopt};
  const std::optional<Timed>& ready = slot.times[n].ready;
  if (ready && (run.end < not_yet || ready->event.is_complete())) run.ready = milliseconds(slot.begin, ready->event);
  return run;
}

StepRecorder::Result StepRecorder::take(std::int64_t step) {
  const Slot& slot = slot_of(step);
  require(step == next_ && slot.step == step, "StepRecorder::take: steps are taken in order, each once");
  ++next_;
  Result result;
  if (step > 0) result.device_ms = milliseconds(slot_of(step - 1).end, slot.end);
  if (slot.detail == Detail::ends) {
    last_ = second_last_ = {};
    result.ledger.step_ms = result.ledger.compute_ms = milliseconds(slot.begin, slot.end);
    return result;
  }
  result.ledger = maker_.make(read(slot));
  return result;
}

parallel::StepTimes StepRecorder::read(const Slot& slot) {
  parallel::StepTimes times;
  times.end = milliseconds(slot.begin, slot.end);
  if (last_.is_known()) {
    const Slot& before = slot_of(slot.step - 1);
    const double shift = -milliseconds(before.begin, slot.begin);
    if (std::ranges::find(last_.end, not_yet) != last_.end.end()) last_ = read_timeline(before, second_last_);
    for (const int n : maker_.communication()) {
      parallel::CommunicationTimes run = run_of(before, last_, n);
      run.begin += shift, run.end += shift;
      if (run.ready) *run.ready += shift;
      times.previous.push_back(run);
    }
    last_.shift(shift);
  }
  Timeline timeline = read_timeline(slot, last_);
  for (const int n : maker_.communication()) times.communication.push_back(run_of(slot, timeline, n));
  for (const int n : maker_.waits()) {
    const auto at = static_cast<std::size_t>(n);
    times.waits.push_back({timeline.reached[at], timeline.begin[at]});
  }
  second_last_ = std::move(last_);
  last_ = std::move(timeline);
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
    record(anchor, compute);
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
  std::vector<double> over(program_.streams.size(), -not_yet);
  for (std::size_t n = 0; n < slot.times.size(); ++n) {
    const Times& t = slot.times[n];
    const parallel::Instruction& i = program_.instructions[n];
    parallel::StepTrace::Slice slice{static_cast<int>(n), at(t.waiting->event), at(t.started->event), at(t.done->event),
                                     std::nullopt};
    if (t.ready) slice.ready = at(t.ready->event);
    // Times are taken a little late, some later than others.
    double& stream = over[static_cast<std::size_t>(i.stream)];
    slice.waiting = std::max(slice.waiting, stream);
    slice.begin = std::max(slice.begin, slice.waiting);
    for (const int awaited : i.waits) {
      if (awaited < slice.instruction) slice.begin = std::max(slice.begin, trace.slices[static_cast<std::size_t>(awaited)].end);
    }
    stream = slice.end = std::max(slice.end, slice.begin);
    trace.slices.push_back(slice);
  }
  return trace;
}

}  // namespace plait::runtime
