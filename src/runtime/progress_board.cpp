#include "runtime/progress_board.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/stream.h"
#include "parallel/program/program_set.h"
#include "runtime/cuda_graph.h"

namespace plait::runtime {

std::vector<bool> shown_instructions(const parallel::Program& program) {
  const auto count = program.instructions.size();
  std::vector<bool> shown(count, true);
  std::vector<bool> awaited(count, false);
  for (const parallel::Instruction& i : program.instructions) {
    for (const int wait : i.waits) awaited[static_cast<std::size_t>(wait)] = true;
  }
  std::vector<int> before(program.streams.size(), -1), in_a_row(program.streams.size(), 0);  // by stream
  const auto computes = [](const parallel::Instruction& i) {
    return !parallel::collective_group(i) && !parallel::is_send(i.kind) && !parallel::is_receive(i.kind);
  };
  for (std::size_t n = 0; n < count; ++n) {
    const parallel::Instruction& i = program.instructions[n];
    const auto stream = static_cast<std::size_t>(i.stream);
    const int last = std::exchange(before[stream], static_cast<int>(n));
    if (last < 0) continue;
    const bool silent = computes(program.at(last)) && computes(i) && i.waits.empty() &&
                        !awaited[static_cast<std::size_t>(last)] && in_a_row[stream] + 1 < most_in_a_row;
    shown[static_cast<std::size_t>(last)] = !silent;
    in_a_row[stream] = silent ? in_a_row[stream] + 1 : 0;
  }
  return shown;
}

ProgressBoard::ProgressBoard(DeviceMemory& memory)
    : counters_(memory.allocate(most_lanes * counter_stride, MemoryKind::pinned_host)) {
  std::memset(counters_.data(), 0, counters_.bytes());
}

std::uint32_t* ProgressBoard::counter(std::size_t lane) const {
  return reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(counters_.data()) + lane * counter_stride);
}

ProgressBoard::Lane& ProgressBoard::lane_of(const parallel::StreamSpec& stream) {
  const auto it = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.stream == stream; });
  if (it != lanes_.end()) return *it;
  require(lanes_.size() < most_lanes, "ProgressBoard: more streams than it has places for");
  Lane lane;
  lane.stream = stream;
  lanes_.push_back(std::move(lane));
  return lanes_.back();
}

std::uint64_t ProgressBoard::done(std::size_t lane) const {
  const std::uint64_t enqueued = lanes_[lane].enqueued;
  const std::uint32_t behind = static_cast<std::uint32_t>(enqueued) - read_counter(counter(lane));
  return enqueued - behind;
}

void ProgressBoard::begin(const parallel::Program& program) {
  std::lock_guard lock(mutex_);
  issued_.assign(program.instructions.size(), false);
  next_ = program.instructions.empty() ? -1 : 0;
  if (program_ == &program) return;
  for (Lane& lane : lanes_) lane.instructions.clear();
  for (const parallel::StreamSpec& stream : program.streams) lane_of(stream).begun = lane_of(stream).enqueued;
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n)
    lane_of(program.stream_of(program.at(n))).instructions.push_back(n);
  program_ = &program;
  shown_ = shown_instructions(program);
}

void ProgressBoard::enqueued(StreamRef aside, const parallel::Program& program, int instruction) {
  std::uint32_t value = 0;
  std::uint32_t* place = nullptr;
  bool shown = true;
  {
    std::lock_guard lock(mutex_);
    Lane& lane = lane_of(program.stream_of(program.at(instruction)));
    value = static_cast<std::uint32_t>(++lane.enqueued);
    place = counter(static_cast<std::size_t>(&lane - lanes_.data()));
    shown = shown_[static_cast<std::size_t>(instruction)];
    issued_[static_cast<std::size_t>(instruction)] = true;
    while (next_ >= 0 && issued_[static_cast<std::size_t>(next_)]) next_ = next_ + 1 < std::ssize(issued_) ? next_ + 1 : -1;
  }
  if (aside.device().is_cuda()) {
    if (shown) aside.write_value(place, value);
  } else {
    aside.enqueue_host([place, value] { write_counter(place, value); });  // a task, so it is dropped after one that failed
  }
}

void ProgressBoard::captured(StreamRef aside, const parallel::Program& program, int instruction) {
  std::uint32_t count = 0;
  std::uint32_t* place = nullptr;
  {
    std::lock_guard lock(mutex_);
    Lane& lane = lane_of(program.stream_of(program.at(instruction)));
    ++lane.not_shown;
    if (!shows(instruction)) return;
    count = std::exchange(lane.not_shown, 0);
    place = counter(static_cast<std::size_t>(&lane - lanes_.data()));
  }
  add_on_stream(aside, place, count);
}

void ProgressBoard::launched(const parallel::Program& program) {
  std::lock_guard lock(mutex_);
  for (const parallel::Instruction& i : program.instructions) ++lane_of(program.stream_of(i)).enqueued;
  next_ = -1;
}

ProgressBoard::Reading ProgressBoard::read() const {
  Reading reading;
  std::lock_guard lock(mutex_);
  reading.program = program_;
  reading.next = next_;
  for (std::size_t place = 0; place < lanes_.size(); ++place) {
    const Lane& lane = lanes_[place];
    const std::uint64_t count = done(place);
    reading.done += count;
    reading.counts.push_back({lane.stream, count});
    if (lane.instructions.empty()) continue;
    const std::uint64_t since = count - lane.begun, length = lane.instructions.size();
    StreamStanding standing{lane.stream, -1, since / length};
    if (count != lane.enqueued) standing.instruction = lane.instructions[since % length];
    reading.standings.push_back(standing);
  }
  return reading;
}

bool ProgressBoard::Reading::idle() const {
  return std::all_of(standings.begin(), standings.end(), [](const StreamStanding& s) { return s.instruction < 0; });
}

std::vector<Standstill> standstills(const ProgressBoard::Reading& reading) {
  std::vector<Standstill> all;
  if (!reading.program) return all;
  const parallel::Program& program = *reading.program;
  const auto is_done = [&](int awaited, std::uint64_t run) {
    const parallel::StreamSpec& stream = program.stream_of(program.at(awaited));
    const auto it =
        std::find_if(reading.standings.begin(), reading.standings.end(), [&](const auto& s) { return s.stream == stream; });
    if (it == reading.standings.end() || it->instruction < 0) return true;
    return it->run > run || (it->run == run && it->instruction > awaited);
  };
  for (const StreamStanding& standing : reading.standings) {
    if (standing.instruction < 0) continue;
    Standstill still{standing.stream, standing.instruction, {}};
    for (const int awaited : program.at(standing.instruction).waits) {
      const bool earlier_run = awaited >= standing.instruction;  // as program.h says
      if (earlier_run && standing.run == 0) continue;
      if (!is_done(awaited, earlier_run ? standing.run - 1 : standing.run)) still.waits_for.push_back(awaited);
    }
    all.push_back(std::move(still));
  }
  return all;
}

}  // namespace plait::runtime
