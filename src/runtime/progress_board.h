// How far each stream of a rank has got: it shows what a rank that stands still is waiting for.
//
// The streams themselves write it, into pinned host memory: reading it needs no call into a driver that may itself hang, and no
// other thread's help. A GPU's stream does not write after every instruction, see shown_instructions().
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/stream.h"
#include "parallel/program/program.h"

namespace plait::runtime {

// Where a stream stands in the program that is being run.
struct StreamStanding {
  parallel::StreamSpec stream;
  int instruction = -1;   // the first one that is not known to be done, by index into the program; -1: all that was enqueued is
  std::uint64_t run = 0;  // of the program, to which that belongs: several may be enqueued
};

// How many instructions a stream has done so far. For a stream of messages both ends should agree on it.
struct StreamCount {
  parallel::StreamSpec stream;
  std::uint64_t done = 0;
};

// By instruction: whether a stream writes that it has done it. A write keeps the kernels before and after it apart: with one
// after every instruction a step of GPT-2 124M on an H200, 52 ms, took 2.3 % longer. So there is none between instructions that
// compute one after the other and can neither stand still nor keep anyone waiting. A program's last one on each stream is
// shown, and one of `most_in_a_row`, so that a long pass shows that it goes on.
inline constexpr int most_in_a_row = 16;
std::vector<bool> shown_instructions(const parallel::Program& program);

class ProgressBoard {
 public:
  explicit ProgressBoard(DeviceMemory& memory);

  // The rank's thread: a run of `program` begins; then each of its instructions, once it is enqueued on its stream. A run of
  // another program than the one before begins only when all streams are drained. Programs outlive the board.
  // On the host device, a stream stops on the board at the task that failed, and so shows it.
  void begin(const parallel::Program& program);
  // `aside`: where shows() says so the companion of its stream, which runs behind it; else any stream of the device.
  void enqueued(StreamRef aside, const parallel::Program& program, int instruction);
  // The same for a run that is captured into a graph (runtime/cuda_graph.h), of a program that has begun: what it enqueues
  // there counts in every launch.
  void captured(StreamRef aside, const parallel::Program& program, int instruction);
  // A launch of it comes next: all of its instructions are enqueued.
  void launched(const parallel::Program& program);
  bool shows(int instruction) const { return shown_[static_cast<std::size_t>(instruction)]; }  // of the program that has begun

  // From any thread.
  struct Reading {
    const parallel::Program* program = nullptr;  // nullptr: none was ever begun
    int next = -1;                          // instruction that the rank's thread enqueues next; -1: it is not within a program
    std::vector<StreamStanding> standings;  // of every stream of the program
    std::vector<StreamCount> counts;        // of every stream so far
    std::uint64_t done = 0;                 // instructions since the start, on all streams
    bool idle() const;                      // nothing is enqueued that is not done
  };
  Reading read() const;

 private:
  struct Lane {
    parallel::StreamSpec stream;
    std::vector<int> instructions;  // of the program, in order
    std::uint64_t begun = 0;        // count when the program was first begun after another one
    std::uint64_t enqueued = 0;     // instructions since the start
    std::uint32_t not_shown = 0;    // captured since the last one that is shown
  };
  Lane& lane_of(const parallel::StreamSpec& stream);
  // Instructions since the start. The counter itself has only 32 bits, and a long run exceeds them.
  std::uint64_t done(std::size_t lane) const;
  std::uint32_t* counter(std::size_t lane) const;

  static constexpr std::size_t most_lanes = 256;
  static constexpr std::size_t counter_stride = 64;  // a cache line each
  Buffer counters_;                                  // pinned; written by the streams
  mutable std::mutex mutex_;
  const parallel::Program* program_ = nullptr;
  std::vector<bool> shown_;  // of it
  int next_ = -1;
  std::vector<Lane> lanes_;  // by stream, in order of appearance; never removed
};

// What a stream's standing means.
struct Standstill {
  parallel::StreamSpec stream;
  int instruction = -1;        // at the head of the stream
  std::vector<int> waits_for;  // instructions of other streams of this rank that must be done first and are not
  // Nothing on this rank holds it back: it is working, or waits for peers.
  bool is_free() const { return waits_for.empty(); }
};
std::vector<Standstill> standstills(const ProgressBoard::Reading& reading);

}  // namespace plait::runtime
