// The progress of streams, and the meaning of a place in a program, on host streams that are held up at will.
#include "runtime/progress_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "runtime/rank_groups.h"

namespace plait::runtime {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr parallel::StreamSpec compute_stream{parallel::StreamRole::compute, -1}, copy_stream{parallel::StreamRole::copy, -1},
    receive_stream{parallel::StreamRole::receive, 1}, send_stream{parallel::StreamRole::send, 1};

// A program in which instruction n is on stream streams[n] and waits for waits[n].
parallel::Program program_of(std::vector<parallel::StreamSpec> streams, std::vector<int> stream_of,
                             std::vector<std::vector<int>> waits = {}) {
  parallel::Program program;
  program.streams = std::move(streams);
  for (std::size_t n = 0; n < stream_of.size(); ++n) {
    parallel::Instruction i;
    i.stream = stream_of[n];
    i.micro_batch = static_cast<int>(n);
    if (n < waits.size()) i.waits = waits[n];
    program.instructions.push_back(i);
  }
  return program;
}

// Holds up a host stream until it is opened.
class Gate {
 public:
  explicit Gate(StreamRef stream) {
    stream.enqueue_host([open = open_] { open->wait(false); });
  }
  ~Gate() { open(); }
  void open() {
    *open_ = true;
    open_->notify_all();
  }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

const StreamStanding& standing_of(const ProgressBoard::Reading& reading, const parallel::StreamSpec& stream) {
  for (const StreamStanding& s : reading.standings) {
    if (s.stream == stream) return s;
  }
  throw std::runtime_error("no standing of " + to_string(stream));
}

std::uint64_t count_of(const ProgressBoard::Reading& reading, const parallel::StreamSpec& stream) {
  for (const StreamCount& c : reading.counts) {
    if (c.stream == stream) return c.done;
  }
  throw std::runtime_error("no count of " + to_string(stream));
}

class ProgressBoardTest : public testing::Test {
 protected:
  // Waits until the streams have written what they wrote before.
  void drain() {
    for (const Stream& s : streams_) s.ref().synchronize();
  }
  StreamRef stream(const parallel::Program& program, int instruction) {
    return streams_[static_cast<std::size_t>(program.at(instruction).stream)].ref();
  }
  void enqueue(const parallel::Program& program, int instruction) {
    board_.enqueued(stream(program, instruction), program, instruction);
  }
  void enqueue_all(const parallel::Program& program) {
    board_.begin(program);
    for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) enqueue(program, n);
  }

  DeviceMemory memory_{Device{}};
  ProgressBoard board_{memory_};
  std::vector<Stream> streams_ = [] {
    std::vector<Stream> streams;
    for (int n = 0; n < 3; ++n) streams.emplace_back(Device{});
    return streams;
  }();
};

TEST_F(ProgressBoardTest, IsEmptyBeforeTheFirstProgram) {
  const auto reading = board_.read();
  EXPECT_EQ(reading.program, nullptr);
  EXPECT_EQ(reading.next, -1);
  EXPECT_TRUE(reading.idle());
  EXPECT_EQ(reading.done, 0u);
  EXPECT_TRUE(standstills(reading).empty());
}

TEST_F(ProgressBoardTest, ShowsWhatIsAtTheHeadOfEachStream) {
  const parallel::Program program = program_of({compute_stream, receive_stream}, {0, 1, 0, 1, 0});
  board_.begin(program);
  EXPECT_TRUE(board_.read().idle()) << "nothing is enqueued yet";
  Gate compute(streams_[0].ref());
  enqueue(program, 0);
  enqueue(program, 1);
  Gate receive(streams_[1].ref());
  for (const int n : {2, 3, 4}) enqueue(program, n);
  while (count_of(board_.read(), receive_stream) < 1) std::this_thread::yield();

  auto reading = board_.read();
  EXPECT_EQ(reading.program, &program);
  EXPECT_FALSE(reading.idle());
  EXPECT_EQ(standing_of(reading, compute_stream).instruction, 0);
  EXPECT_EQ(standing_of(reading, receive_stream).instruction, 3) << "instruction 1 is done";
  EXPECT_EQ(reading.done, 1u);

  compute.open(), receive.open();
  drain();
  reading = board_.read();
  EXPECT_TRUE(reading.idle());
  EXPECT_EQ(reading.done, 5u);
  EXPECT_EQ(count_of(reading, compute_stream), 3u);
}

TEST(ShownInstructions, AreThoseWhereAStreamMayStandStillOrIsWaitedFor) {
  //                                         0  1  2  3  4  5  6
  parallel::Program program = program_of({compute_stream, send_stream}, {0, 0, 0, 1, 0, 0, 0}, {{}, {}, {}, {1}, {}, {3}, {}});
  program.instructions[3].kind = parallel::InstructionKind::send_activation;
  // 1 is awaited by 3; 5 waits, so 4 is shown; 6 is the last of its stream.
  EXPECT_EQ(shown_instructions(program), (std::vector<bool>{false, true, false, true, true, false, true}));

  program.instructions[2].kind = parallel::InstructionKind::collective;  // a collective on the compute stream may hang
  EXPECT_EQ(shown_instructions(program), (std::vector<bool>{false, true, true, true, true, false, true}));
}

TEST(ShownInstructions, ALongRunShowsThatItGoesOn) {
  const std::vector<bool> shown = shown_instructions(program_of({compute_stream}, std::vector<int>(100, 0)));
  int in_a_row = 0;
  for (const bool s : shown) EXPECT_LE(in_a_row = s ? 0 : in_a_row + 1, most_in_a_row - 1);
  EXPECT_LE(std::count(shown.begin(), shown.end(), true), 100 / most_in_a_row + 1);
  EXPECT_TRUE(shown.back());
}

TEST_F(ProgressBoardTest, TellsWhereTheRanksThreadIs) {
  const parallel::Program program = program_of({compute_stream}, {0, 0});
  EXPECT_EQ(board_.read().next, -1);
  board_.begin(program);
  EXPECT_EQ(board_.read().next, 0);
  enqueue(program, 0);
  EXPECT_EQ(board_.read().next, 1);
  enqueue(program, 1);
  EXPECT_EQ(board_.read().next, -1) << "between two steps";
  board_.begin(program);
  EXPECT_EQ(board_.read().next, 0) << "the next one";
}

TEST_F(ProgressBoardTest, CountsRunsWhereSeveralStepsAreInFlight) {
  const parallel::Program program = program_of({compute_stream, send_stream}, {0, 0, 1});
  enqueue_all(program);  // runs at once
  drain();
  Gate send(streams_[1].ref());
  enqueue_all(program);
  enqueue_all(program);
  streams_[0].ref().synchronize();
  auto reading = board_.read();
  EXPECT_EQ(standing_of(reading, compute_stream).instruction, -1);
  EXPECT_EQ(standing_of(reading, compute_stream).run, 3u);
  EXPECT_EQ(standing_of(reading, send_stream).instruction, 2);
  EXPECT_EQ(standing_of(reading, send_stream).run, 1u) << "the first run is done, the second at its head";
  EXPECT_FALSE(reading.idle());
  send.open();
  drain();
  EXPECT_TRUE(board_.read().idle());
}

TEST_F(ProgressBoardTest, AnotherProgramBeginsAnewAndCountsGoOn) {
  const parallel::Program first = program_of({compute_stream, send_stream}, {0, 0, 1});
  const parallel::Program second = program_of({compute_stream, copy_stream}, {0, 1});
  enqueue_all(first);
  drain();
  Gate copy(streams_[1].ref());
  enqueue_all(second);
  streams_[0].ref().synchronize();
  auto reading = board_.read();
  EXPECT_EQ(reading.program, &second);
  EXPECT_EQ(reading.standings.size(), 2u) << "the first program's send is no stream of this one";
  EXPECT_EQ(standing_of(reading, compute_stream).instruction, -1);
  EXPECT_EQ(standing_of(reading, compute_stream).run, 1u);
  EXPECT_EQ(standing_of(reading, copy_stream).instruction, 1);
  EXPECT_EQ(standing_of(reading, copy_stream).run, 0u);
  EXPECT_EQ(count_of(reading, send_stream), 1u) << "messages of an earlier program count";
  EXPECT_EQ(count_of(reading, compute_stream), 3u);
  copy.open();
  drain();

  Gate compute(streams_[0].ref());
  enqueue_all(first);
  reading = board_.read();
  EXPECT_EQ(standing_of(reading, compute_stream).instruction, 0) << "back in the first program, from its beginning";
  EXPECT_EQ(standing_of(reading, compute_stream).run, 0u);
  compute.open();
  drain();
  EXPECT_EQ(board_.read().done, 8u);
}

TEST_F(ProgressBoardTest, AStreamThatFailedStandsAtWhatFailed) {
  const parallel::Program program = program_of({compute_stream}, {0, 0, 0});
  board_.begin(program);
  enqueue(program, 0);
  streams_[0].ref().enqueue_host([] { throw CommError("lost the connection"); });  // in place of instruction 1
  enqueue(program, 1);
  enqueue(program, 2);
  EXPECT_THROW(streams_[0].ref().synchronize(), CommError);
  EXPECT_EQ(standing_of(board_.read(), compute_stream).instruction, 1);
}

// Under ThreadSanitizer: one thread enqueues, the streams write, others read.
TEST_F(ProgressBoardTest, IsReadFromOtherThreadsWhileStepsRun) {
  const parallel::Program first = program_of({compute_stream, send_stream}, {0, 1, 0});
  const parallel::Program second = program_of({compute_stream}, {0, 0});
  std::atomic<bool> over = false;
  const auto look = [&] {
    std::uint64_t done = 0;
    while (!over) {
      const auto reading = board_.read();
      EXPECT_GE(reading.done, done);
      done = reading.done;
      for (const Standstill& s : standstills(reading))
        EXPECT_LT(s.instruction, static_cast<int>(reading.program->instructions.size()));
    }
  };
  std::thread one(look), two(look);
  for (int round = 0; round < 100; ++round) {
    for (int step = 0; step < 3; ++step) enqueue_all(first);
    drain();
    enqueue_all(second);
    drain();
  }
  over = true;
  one.join(), two.join();
  EXPECT_EQ(board_.read().done, 100u * (3 * 3 + 2));
}

// A reading in which the streams of a program stand at these places: instruction (-1: drained) and run, by Program::streams.
ProgressBoard::Reading reading_of(const parallel::Program& program, std::vector<std::pair<int, std::uint64_t>> places) {
  ProgressBoard::Reading reading;
  reading.program = &program;
  for (std::size_t n = 0; n < places.size(); ++n)
    reading.standings.push_back({program.streams[n], places[n].first, places[n].second});
  return reading;
}

TEST(Standstills, AStreamWaitsForWhatIsNotDoneAndComesFirst) {
  // receive 0, compute 1 (after 0), compute 2, send 3 (after 1 and 2)
  const parallel::Program program =
      program_of({compute_stream, receive_stream, send_stream}, {1, 0, 0, 2}, {{}, {0}, {}, {1, 2}});
  auto all = standstills(reading_of(program, {{1, 0}, {0, 0}, {3, 0}}));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].stream, compute_stream);
  EXPECT_THAT(all[0].waits_for, ElementsAre(0));
  EXPECT_TRUE(all[1].is_free()) << "the message is for another rank to send";
  EXPECT_THAT(all[2].waits_for, ElementsAre(1, 2));

  all = standstills(reading_of(program, {{2, 0}, {-1, 1}, {3, 0}}));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].is_free()) << "at work";
  EXPECT_THAT(all[1].waits_for, ElementsAre(2)) << "1 is done";
}

TEST(Standstills, AWaitForALaterInstructionIsForThePreviousRun) {
  // compute 0 waits for the send 1 of the step before.
  const parallel::Program program = program_of({compute_stream, send_stream}, {0, 1}, {{1}, {0}});
  auto all = standstills(reading_of(program, {{0, 0}, {-1, 0}}));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].is_free()) << "there is no step before the first";

  all = standstills(reading_of(program, {{0, 2}, {1, 1}}));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0].waits_for, ElementsAre(1)) << "of run 1";
  EXPECT_TRUE(all[1].is_free()) << "instruction 0 of run 1 is done: its stream is in run 2";

  all = standstills(reading_of(program, {{0, 2}, {1, 2}}));
  EXPECT_THAT(all[0].waits_for, IsEmpty()) << "run 1 of the send is over";
  EXPECT_THAT(all[1].waits_for, ElementsAre(0)) << "of its own run, 2";
}

TEST(Standstills, ADrainedStreamHoldsUpNobody) {
  const parallel::Program program = program_of({compute_stream, receive_stream}, {1, 0}, {{}, {0}});
  const auto all = standstills(reading_of(program, {{1, 4}, {-1, 5}}));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].is_free());
}

}  // namespace
}  // namespace plait::runtime
