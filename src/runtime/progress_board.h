// The progress of each stream of a rank: it shows what a rank that stands still is waiting for.
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

// The place of a stream in the program that is being run.
struct StreamStanding {
  parallel::StreamSpec stream;
  int instruction = -1;   // index of the first one that is not known to be done; -1: all that was enqueued is done
  std::uint64_t run = 0;  // run of the program to which the instruction belongs: several may be enqueued
};

// The number of instructions that a stream has done so far. For a stream of messages both ends should agree on it.
struct StreamCount {
  parallel::StreamSpec stream;
  std::uint64_t done = 0;
};

// The instructions after which a GPU's stream writes that they are done, as flags by index. A write keeps the kernels before
// and after it apart: with one after every instruction a step of GPT-2 124M on an H200, 52 ms, took 2.3 % longer. So there is
// none between instructions that compute one after the other and can neither stand still nor keep anyone waiting. A program's
// last instruction on each stream is shown, and one of `most_in_a_row`, so that a long pass shows that it goes on.
inline constexpr int most_in_a_row = 16;
std::vector<bool> shown_instructions(const parallel::Program& program);

class ProgressBoard {
 public:
  explicit ProgressBoard(DeviceMemory& memory);

  // Called by the rank's thread: a run of `program` begins. enqueued() follows for each of its instructions, once it is
  // enqueued on its stream. A run of another program than the one before begins only when all streams are drained. Programs
  // outlive the board. On the host device, a stream stops on the board at the task that failed, and so shows it.
  void begin(const parallel::Program& program);
  // `aside`: if shows() says so, the companion of the instruction's stream, which runs behind it; else any stream of the
  // device.
  void enqueued(StreamRef aside, const parallel::Program& program, int instruction);
  // The same for a run that is captured into a graph (runtime/cuda_graph.h), of a program that has begun. Its enqueued work
  // counts in every launch.
  void captured(StreamRef aside, const parallel::Program& program, int instruction);
  // A launch of the graph comes next: all of its instructions are enqueued.
  void launched(const parallel::Program& program);
  bool shows(int instruction) const { return shown_[static_cast<std::size_t>(instruction)]; }  // of the program that has begun

  // A reading; read() may be called from any thread.
  struct Reading {
    const parallel::Program* program = nullptr;  // nullptr: no program was ever begun
    int next = -1;                          // instruction that the rank's thread enqueues next; -1: it is not within a program
    std::vector<StreamStanding> standings;  // for every stream of the program
    std::vector<StreamCount> counts;        // for every stream so far
    std::uint64_t done = 0;                 // number of instructions done since the start, on all streams
    bool idle() const;                      // everything enqueued is done
  };
  Reading read() const;

 private:
  struct Lane {
    parallel::StreamSpec stream;
    std::vector<int> instructions;  // those of the program, in order
    std::uint64_t begun = 0;        // count when the program was first begun after another one
    std::uint64_t enqueued = 0;     // instructions since the start
    std::uint32_t not_shown = 0;    // number captured since the last one that is shown
  };
  Lane& lane_of(const parallel::StreamSpec& stream);
  // The number of instructions done since the start. The counter itself has only 32 bits, and a long run exceeds them.
  std::uint64_t done(std::size_t lane) const;
  std::uint32_t* counter(std::size_t lane) const;

  static constexpr std::size_t most_lanes = 256;
  static constexpr std::size_t counter_stride = 64;  // a cache line each
  Buffer counters_;                                  // pinned; written by the streams
  mutable std::mutex mutex_;
  const parallel::Program* program_ = nullptr;
  std::vector<bool> shown_;   // of program_
  std::vector<bool> issued_;  // by instruction of program_, in this run
  int next_ = -1;             // the first that is not issued
  std::vector<Lane> lanes_;   // by stream, in order of appearance; never removed
};

// The meaning of a stream's standing.
struct Standstill {
  parallel::StreamSpec stream;
  int instruction = -1;        // at the head of the stream
  std::vector<int> waits_for;  // instructions of other streams of this rank that must be done first and are not
  // True if nothing on this rank holds it back: it is working, or waits for peers.
  bool is_free() const { return waits_for.empty(); }
};
std::vector<Standstill> standstills(const ProgressBoard::Reading& reading);

}  // namespace plait::runtime
