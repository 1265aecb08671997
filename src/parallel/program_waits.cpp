// Which instructions have to wait for which, from the buffers they use.
#include <algorithm>
#include <map>

#include "parallel/pipeline_program.h"

namespace plait::parallel {
namespace {

// Positions count instructions over two steps: the waits of the second one are those of every step but the first, and there a
// position of the first step stands for the previous step.
constexpr int none = -1;

struct Accesses {
  int last_write = none;
  std::vector<int> last_read;  // by stream
};

// What is known to have run when an instruction starts: by stream, the latest position.
using Clock = std::vector<int>;

void merge(Clock& into, const Clock& other) {
  for (std::size_t s = 0; s < into.size(); ++s) into[s] = std::max(into[s], other[s]);
}

}  // namespace

void derive_waits(Program& program, const std::vector<Bucket>& buckets) {
  const int count = static_cast<int>(program.instructions.size());
  const std::size_t streams = program.streams.size();
  std::map<BufferId, Accesses> accesses;
  std::vector<Clock> finished(static_cast<std::size_t>(2 * count), Clock(streams, none));  // known when it has run
  Clock started(streams, none);
  std::vector<int> last_on_stream(streams, none);

  for (int position = 0; position < 2 * count; ++position) {
    Instruction& i = program.instructions[static_cast<std::size_t>(position % count)];
    const auto stream = static_cast<std::size_t>(i.stream);
    const auto stream_at = [&](int other) {
      return static_cast<std::size_t>(program.instructions[static_cast<std::size_t>(other % count)].stream);
    };
    std::fill(started.begin(), started.end(), none);
    if (last_on_stream[stream] != none) started = finished[static_cast<std::size_t>(last_on_stream[stream])];
    const auto know = [&](int other) { merge(started, finished[static_cast<std::size_t>(other)]); };
    const int step_begin = position - position % count;
    for (const int awaited : i.waits) {
      const int other = step_begin + awaited - (awaited > position % count ? count : 0);
      if (other >= 0) know(other);
    }

    std::vector<int> needed;
    const std::vector<BufferUse> uses = buffer_uses(program, i, buckets);
    for (const BufferUse& use : uses) {
      Accesses& a = accesses.try_emplace(use.buffer, Accesses{none, std::vector<int>(streams, none)}).first->second;
      needed.push_back(a.last_write);
      if (use.writes) needed.insert(needed.end(), a.last_read.begin(), a.last_read.end());
    }
    // Latest first: it often implies the others.
    std::sort(needed.rbegin(), needed.rend());
    for (const int other : needed) {
      if (other == none || started[stream_at(other)] >= other) continue;
      know(other);
      if (position >= count) i.waits.push_back(other % count);
    }
    for (const BufferUse& use : uses) {
      Accesses& a = accesses[use.buffer];
      if (use.writes) {
        a.last_write = position;
        std::fill(a.last_read.begin(), a.last_read.end(), none);
      } else {
        a.last_read[stream] = position;
      }
    }
    finished[static_cast<std::size_t>(position)] = started;
    finished[static_cast<std::size_t>(position)][stream] = position;
    last_on_stream[stream] = position;
  }
}

}  // namespace plait::parallel
