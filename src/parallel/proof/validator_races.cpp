// Checks that every order that streams and waits allow gives what the order of the list gives.
#include <algorithm>
#include <map>

#include "parallel/proof/validator_checks.h"

namespace plait::parallel {
namespace {

// Positions count instructions over all steps, one after another.
class RaceCheck {
 public:
  RaceCheck(const ProgramSet& set, int rank, ProblemList& problems)
      : rank_(rank),
        program_(set.program(rank)),
        problems_(problems),
        count_(static_cast<int>(program_.instructions.size())),
        streams_(program_.streams.size()),
        places_(static_cast<std::size_t>(validated_steps * count_)) {
    for (const Instruction& i : program_.instructions) {
      std::vector<NumberedUse> uses;
      for (const BufferUse& use : buffer_uses(program_, i, set.of(rank).buckets)) {
        const int number = numbers_.try_emplace(use.buffer, static_cast<int>(numbers_.size())).first->second;
        uses.push_back({number, use.writes});
      }
      uses_.push_back(std::move(uses));
    }
  }

  void run() {
    keep_clocks();
    history_.assign(numbers_.size(), {none, std::vector<int>(streams_, none)});
    for (int position = 0; position < validated_steps * count_; ++position) {
      for (const NumberedUse& use : uses_[static_cast<std::size_t>(position % count_)]) check(position, use);
      for (const NumberedUse& use : uses_[static_cast<std::size_t>(position % count_)]) remember(position, use);
    }
  }

 private:
  static constexpr int none = -1;

  struct NumberedUse {
    int buffer = 0;
    bool writes = false;
  };
  // The last accesses of a buffer. Earlier ones need no check: they are ordered before these, or have been reported.
  struct History {
    int write = none;
    std::vector<int> reads;  // since that write, by stream
  };

  const Instruction& at(int position) const { return program_.at(position % count_); }
  std::size_t stream(int position) const { return static_cast<std::size_t>(at(position).stream); }

  // Vector clocks (Mattern 1989): for each instruction, the number of instructions of every stream that are sure to have run
  // before.
  void keep_clocks() {
    clocks_.assign(places_.size() * streams_, 0);
    std::vector<std::vector<int>> after(streams_, std::vector<int>(streams_, 0));  // by stream: after its last instruction
    std::vector<std::vector<int>> done(places_.size());
    for (int position = 0; position < validated_steps * count_; ++position) {
      std::vector<int> clock = after[stream(position)];
      for (const int w : at(position).waits) {
        const int awaited = position - position % count_ + (w < position % count_ ? w : w - count_);
        if (awaited < 0) continue;  // before the first step
        const std::vector<int>& other = done[static_cast<std::size_t>(awaited)];
        for (std::size_t s = 0; s < streams_; ++s) clock[s] = std::max(clock[s], other[s]);
      }
      std::copy(clock.begin(), clock.end(), clocks_.begin() + position * static_cast<std::ptrdiff_t>(streams_));
      places_[static_cast<std::size_t>(position)] = ++clock[stream(position)];
      after[stream(position)] = clock;
      done[static_cast<std::size_t>(position)] = std::move(clock);
    }
  }

  bool ordered(int earlier, int later) const {
    return clocks_[static_cast<std::size_t>(later) * streams_ + stream(earlier)] >= places_[static_cast<std::size_t>(earlier)];
  }

  void check(int position, const NumberedUse& use) {
    const History& before = history_[static_cast<std::size_t>(use.buffer)];
    const auto against = [&](int earlier) {
      if (earlier == none || ordered(earlier, position)) return;
      const bool same_step = earlier / count_ == position / count_;
      const auto buffer =
          std::find_if(numbers_.begin(), numbers_.end(), [&](const auto& n) { return n.second == use.buffer; })->first;
      problems_.add(rank_, position % count_,
                    "is not made to wait for " + name_of(program_, earlier % count_) +
                        (same_step ? "" : " of the step before") + ", on the stream '" +
                        to_string(program_.stream_of(at(earlier))) + "': both use '" + to_string(buffer) + "'");
    };
    against(before.write);
    if (use.writes) std::for_each(before.reads.begin(), before.reads.end(), against);
  }

  void remember(int position, const NumberedUse& use) {
    History& history = history_[static_cast<std::size_t>(use.buffer)];
    if (use.writes) {
      history.write = position;
      std::fill(history.reads.begin(), history.reads.end(), none);
    } else {
      history.reads[stream(position)] = position;
    }
  }

  int rank_;
  const Program& program_;
  ProblemList& problems_;
  int count_;
  std::size_t streams_;
  std::vector<int> places_;  // by position: number of its stream's instructions up to it
  std::vector<int> clocks_;  // [position][stream]
  std::map<BufferId, int> numbers_;
  std::vector<std::vector<NumberedUse>> uses_;  // by instruction
  std::vector<History> history_;                // by buffer number
};

}  // namespace

void check_races(const ProgramSet& set, int rank, ProblemList& problems) { RaceCheck(set, rank, problems).run(); }

}  // namespace plait::parallel
