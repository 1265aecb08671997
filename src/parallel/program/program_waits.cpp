#include "parallel/program/program_waits.h"

#include <algorithm>
#include <map>

namespace plait::parallel {
namespace {

// Positions count instructions over two steps: the waits of the second one are those of every step but the first, and there a
// position of the first step stands for the previous step.
constexpr int none = -1;

// Rows of one number per stream. Of a buffer: its latest reads. Of a position: what is known to have run, on each stream the
// latest position.
class StreamTable {
 public:
  StreamTable(std::size_t rows, std::size_t streams) : streams_(streams), numbers_(rows * streams, none) {}
  int* row(int index) { return numbers_.data() + static_cast<std::size_t>(index) * streams_; }

 private:
  std::size_t streams_;
  std::vector<int> numbers_;
};

// What each instruction reads and writes, with buffers numbered.
struct Use {
  int buffer = 0;
  bool writes = false;
};
struct Uses {
  std::vector<std::vector<Use>> of;  // by instruction
  std::size_t buffers = 0;
};

Uses number_uses(const Program& program, const std::vector<Bucket>& buckets) {
  Uses uses;
  std::map<BufferId, int> numbers;
  const BucketsOfSegments of_segments(buckets);
  for (const Instruction& i : program.instructions) {
    std::vector<Use>& list = uses.of.emplace_back();
    for (const BufferUse& use : buffer_uses(program, i, of_segments)) {
      list.push_back({numbers.try_emplace(use.buffer, static_cast<int>(numbers.size())).first->second, use.writes});
    }
  }
  uses.buffers = numbers.size();
  return uses;
}

}  // namespace

void derive_waits(Program& program, const std::vector<Bucket>& buckets) {
  const int count = static_cast<int>(program.instructions.size());
  const std::size_t streams = program.streams.size();
  const Uses uses = number_uses(program, buckets);
  std::vector<int> last_write(uses.buffers, none);
  StreamTable last_read(uses.buffers, streams);
  StreamTable finished(static_cast<std::size_t>(2 * count), streams);  // known when it has run
  std::vector<int> last_on_stream(streams, none), needed;

  for (int position = 0; position < 2 * count; ++position) {
    Instruction& i = program.instructions[static_cast<std::size_t>(position % count)];
    const auto stream = static_cast<std::size_t>(i.stream);
    const auto stream_at = [&](int other) {
      return static_cast<std::size_t>(program.instructions[static_cast<std::size_t>(other % count)].stream);
    };
    int* known = finished.row(position);
    const auto know = [&](int other) {
      const int* more = finished.row(other);
      for (std::size_t s = 0; s < streams; ++s) known[s] = std::max(known[s], more[s]);
    };
    if (last_on_stream[stream] != none) know(last_on_stream[stream]);
    const int step_begin = position - position % count;
    for (const int awaited : i.waits) {
      const int other = step_begin + awaited - (awaited > position % count ? count : 0);
      if (other >= 0) know(other);
    }

    needed.clear();
    const std::vector<Use>& here = uses.of[static_cast<std::size_t>(position % count)];
    for (const Use& use : here) {
      needed.push_back(last_write[static_cast<std::size_t>(use.buffer)]);
      const int* reads = last_read.row(use.buffer);
      if (use.writes) needed.insert(needed.end(), reads, reads + streams);
    }
    // Latest first: it often implies the others.
    std::erase(needed, none);
    std::sort(needed.rbegin(), needed.rend());
    for (const int other : needed) {
      if (known[stream_at(other)] >= other) continue;
      know(other);
      if (position >= count) i.waits.push_back(other % count);
    }
    for (const Use& use : here) {
      int* reads = last_read.row(use.buffer);
      if (use.writes) {
        last_write[static_cast<std::size_t>(use.buffer)] = position;
        std::fill(reads, reads + streams, none);
      } else {
        reads[stream] = position;
      }
    }
    known[stream] = position;
    last_on_stream[stream] = position;
  }
}

ProgramOrder::ProgramOrder(const Program& program)
    : count_(static_cast<int>(program.instructions.size())), streams_(program.streams.size()) {
  StreamTable finished(static_cast<std::size_t>(2 * count_), streams_);
  std::vector<int> last_on_stream(streams_, none);
  for (int position = 0; position < 2 * count_; ++position) {
    const Instruction& i = program.at(position % count_);
    int* known = finished.row(position);
    const auto know = [&](int other) {
      const int* more = finished.row(other);
      for (std::size_t s = 0; s < streams_; ++s) known[s] = std::max(known[s], more[s]);
    };
    const auto stream = static_cast<std::size_t>(i.stream);
    if (last_on_stream[stream] != none) know(last_on_stream[stream]);
    for (const int awaited : i.waits) {
      const int other = position - position % count_ + awaited - (awaited > position % count_ ? count_ : 0);
      if (other >= 0) know(other);
    }
    if (position >= count_) known_.insert(known_.end(), known, known + streams_);
    known[stream] = position;
    last_on_stream[stream] = position;
  }
}

int ProgramOrder::last_before(int n, int stream) const {
  const int position = known_[static_cast<std::size_t>(n) * streams_ + static_cast<std::size_t>(stream)];
  return position - count_;  // none, -1, becomes -count() - 1
}

}  // namespace plait::parallel
