#include "parallel/program/program_waits.h"

#include <algorithm>
#include <map>
#include <span>

namespace plait::parallel {
namespace {

// Positions count instructions over two steps: the waits of the second one are those of every step but the first, and there a
// position of the first step stands for the previous step.
constexpr int none = -1;

// Goes through the positions in order. For each, it knows the latest position on each stream that is sure to have run before.
class Walk {
 public:
  explicit Walk(const Program& program)
      : program_(program),
        count_(static_cast<int>(program.instructions.size())),
        streams_(program.streams.size()),
        known_(2 * program.instructions.size() * streams_, none),
        last_on_stream_(streams_, none) {}

  // Starts with what is known at the instruction before it on its stream and at those that it waits for.
  void begin(int position) {
    position_ = position;
    const Instruction& i = program_.at(position % count_);
    const int before = last_on_stream_[static_cast<std::size_t>(i.stream)];
    if (before != none) know(before);
    for (const int awaited : i.waits) {
      const int other = position - position % count_ + awaited - (awaited > position % count_ ? count_ : 0);
      if (other >= 0) know(other);
    }
  }
  bool knows(int other) { return row(position_)[stream_of(other)] >= other; }
  void know(int other) {
    int *known = row(position_), *more = row(other);
    for (std::size_t s = 0; s < streams_; ++s) known[s] = std::max(known[s], more[s]);
  }
  std::span<const int> known() { return {row(position_), streams_}; }
  void end() { row(position_)[stream_of(position_)] = last_on_stream_[stream_of(position_)] = position_; }

 private:
  int* row(int position) { return known_.data() + static_cast<std::size_t>(position) * streams_; }
  std::size_t stream_of(int position) const { return static_cast<std::size_t>(program_.at(position % count_).stream); }

  const Program& program_;
  int count_, position_ = 0;
  std::size_t streams_;
  std::vector<int> known_;  // [position][stream]
  std::vector<int> last_on_stream_;
};

// The buffers that each instruction reads and writes, as numbers.
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

// The work of an instruction in quarters of a block. A segment counts as half a block, and each of its parts has an equal
// share.
int quarters(const Program& program, const Instruction& i) {
  return computes_segment(i.kind) ? 2 / parts_of(program.segment(i.segment), i.kind) : 0;
}

}  // namespace

void derive_waits(Program& program, const std::vector<Bucket>& buckets) {
  const int count = static_cast<int>(program.instructions.size());
  const std::size_t streams = program.streams.size();
  const Uses uses = number_uses(program, buckets);
  std::vector<int> last_write(uses.buffers, none), needed;
  std::vector<int> last_reads(uses.buffers * streams, none);  // [buffer][stream]
  Walk walk(program);
  for (int position = 0; position < 2 * count; ++position) {
    Instruction& i = program.instructions[static_cast<std::size_t>(position % count)];
    const auto reads_of = [&](const Use& use) { return last_reads.data() + static_cast<std::size_t>(use.buffer) * streams; };
    walk.begin(position);
    needed.clear();
    const std::vector<Use>& here = uses.of[static_cast<std::size_t>(position % count)];
    for (const Use& use : here) {
      needed.push_back(last_write[static_cast<std::size_t>(use.buffer)]);
      if (use.writes) needed.insert(needed.end(), reads_of(use), reads_of(use) + streams);
    }
    // The latest comes first: it often implies the others.
    std::erase(needed, none);
    std::sort(needed.rbegin(), needed.rend());
    for (const int other : needed) {
      if (walk.knows(other)) continue;
      walk.know(other);
      if (position >= count) i.waits.push_back(other % count);
    }
    for (const Use& use : here) {
      if (use.writes) {
        last_write[static_cast<std::size_t>(use.buffer)] = position;
        std::fill_n(reads_of(use), streams, none);
      } else {
        reads_of(use)[i.stream] = position;
      }
    }
    walk.end();
  }
}

ProgramOrder::ProgramOrder(const Program& program)
    : count_(static_cast<int>(program.instructions.size())), streams_(program.streams.size()) {
  Walk walk(program);
  for (int position = 0; position < 2 * count_; ++position) {
    walk.begin(position);
    if (position >= count_) known_.insert(known_.end(), walk.known().begin(), walk.known().end());
    walk.end();
  }
}

int ProgramOrder::last_before(int n, int stream) const {
  const int position = known_[static_cast<std::size_t>(n) * streams_ + static_cast<std::size_t>(stream)];
  return position - count_;  // none, -1, becomes -count() - 1
}

void find_computed_beside(Program& program) {
  const int count = static_cast<int>(program.instructions.size());
  const auto is_computed = [&](int n) { return program.stream_of(program.at(n)).role == StreamRole::compute; };
  int input = -1;  // the last computed instruction that exchanges so far have waited for
  for (int n = 0; n < count; ++n) {
    Instruction& i = program.instructions[static_cast<std::size_t>(n)];
    if (program.stream_of(i).role != StreamRole::exchange) continue;
    for (const int awaited : i.waits) {
      // A wait for a later instruction is for its run in the step before.
      if (awaited < n && is_computed(awaited)) input = std::max(input, awaited);
    }
    if (!communicates_in_pass(i)) continue;
    i.beside = 0;
    for (int k = input + 1; k < count && i.beside < most_beside; ++k) {
      if (!is_computed(k)) continue;
      const auto needs = [&](int awaited) { return awaited >= n && awaited < k && program.at(awaited).stream == i.stream; };
      if (std::ranges::any_of(program.at(k).waits, needs)) break;
      i.beside += quarters(program, program.at(k));
    }
    i.beside = std::min(i.beside, most_beside);
  }
}

}  // namespace plait::parallel
