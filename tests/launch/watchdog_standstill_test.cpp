// Who holds up whom, from answers made by hand, and what ranks answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "comm/meeting.h"
#include "comm/p2p/facts.h"
#include "launch/process_state.h"
#include "launch/standstill.h"
#include "parallel/collectives.h"
#include "parallel/make_layout.h"

namespace plait::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Answers = std::vector<std::optional<RankStanding>>;
using Stream = RankStanding::Stream;

RankStanding rank(int number, std::vector<Stream> streams) {
  return {.rank = number, .process = 4710 + number, .streams = std::move(streams)};
}
Stream receive(const std::string& what, int from) {
  return {.instruction = "receive_activation " + what, .peers = {from}, .from = from};
}
Stream send(const std::string& what, int to) { return {.instruction = "send_activation " + what, .peers = {to}, .to = to}; }
Stream reduce(std::vector<int> peers) { return {.instruction = "reduce_gradients bucket 1", .peers = std::move(peers)}; }
Stream forward() { return {.instruction = "forward micro-batch 0 segment 2"}; }

Explanation explain(const Answers& answers, const std::map<int, Silence>& silent = {}) {
  return explain_standstill(answers, [&](int r) {
    EXPECT_TRUE(silent.contains(r)) << "asked about rank " << r << ", which answered";
    return silent.at(r);
  });
}
const Silence stopped{Silence::Kind::dead, "does not answer: its process 4712 is stopped (SIGSTOP, or a debugger)"};
const Silence mute{Silence::Kind::unknown, "does not answer: its process 9 on far is stopped, dead, or cut off"};

TEST(WatchdogStandstill, AChainEndsAtTheRankThatDoesNotWait) {
  const auto e =
      explain({rank(0, {receive("micro-batch 2", 1)}), rank(1, {receive("micro-batch 3", 2)}), rank(2, {forward()})});
  EXPECT_EQ(e.culprit, "rank 2 is at work on `forward micro-batch 0 segment 2`");
  EXPECT_FALSE(e.certain);
  EXPECT_THAT(e.details,
              AllOf(HasSubstr("rank 0 (process 4710"), HasSubstr("waits in `receive_activation micro-batch 2` for rank 1"),
                    HasSubstr("waits in `receive_activation micro-batch 3` for rank 2")));
}

TEST(WatchdogStandstill, ACircleIsNamed) {
  const auto e =
      explain({rank(0, {send("micro-batch 1", 1)}),
               rank(1, {{.instruction = "send_gradient micro-batch 0", .peers = {0}, .to = 0}}), rank(2, {reduce({0})})});
  EXPECT_EQ(e.culprit, "ranks 0, 1 wait for each other in a circle") << "rank 2 only waits for it";
}

TEST(WatchdogStandstill, ACollectiveThatAllHaveComeToIsWhatHangs) {
  const auto e = explain({rank(0, {reduce({1})}), rank(1, {reduce({0})})});
  EXPECT_THAT(e.culprit, StartsWith("ranks 0, 1 have all come to `reduce_gradients bucket 1`, which does not end"));
}

TEST(WatchdogStandstill, WhoHasNotComeToACollectiveHoldsUpTheOthers) {
  const auto e = explain({rank(0, {reduce({1, 2})}), rank(1, {reduce({0, 2})}), rank(2, {})});
  EXPECT_EQ(e.culprit, "rank 2 has nothing to do on its device: its thread is between two steps");
  RankStanding stuck = rank(2, {});
  stuck.next = "load_batch micro-batch 3";
  EXPECT_EQ(explain({rank(0, {reduce({1, 2})}), rank(1, {reduce({0, 2})}), stuck}).culprit,
            "rank 2 has nothing to do on its device: its thread is about to enqueue `load_batch micro-batch 3`");
}

TEST(WatchdogStandstill, ARankThatIsStoppedIsTheCulpritWhoeverElseWaits) {
  const auto e =
      explain({rank(0, {receive("micro-batch 0", 1)}), rank(1, {receive("micro-batch 0", 0)}), std::nullopt}, {{2, stopped}});
  EXPECT_EQ(e.culprit, "rank 2 does not answer: its process 4712 is stopped (SIGSTOP, or a debugger)");
  EXPECT_TRUE(e.certain);
  EXPECT_THAT(e.details, HasSubstr("rank 1"));
}

TEST(WatchdogStandstill, ARankOfWhichNothingIsKnownIsOneOnlyIfSomebodyWaitsForIt) {
  EXPECT_EQ(explain({rank(0, {reduce({1})}), std::nullopt}, {{1, mute}}).culprit, "rank 1 " + mute.words);
  EXPECT_EQ(explain({rank(0, {receive("micro-batch 0", 1)}), rank(1, {forward()}), std::nullopt}, {{2, mute}}).culprit,
            "rank 1 is at work on `forward micro-batch 0 segment 2`");
}

TEST(WatchdogStandstill, ARankThatFailedByItselfIsAllThereIsToSay) {
  const auto e = explain({rank(0, {reduce({1, 2})}), std::nullopt, std::nullopt},
                         {{1, {Silence::Kind::failed, "failed: no space left"}}, {2, stopped}});
  EXPECT_EQ(e.culprit, "rank 1 failed: no space left");
  EXPECT_EQ(e.details, "");
  EXPECT_TRUE(e.certain);
}

TEST(WatchdogStandstill, WhoEndedEarlierThanTheOthersExpectIsNamed) {
  const auto e =
      explain({rank(0, {receive("micro-batch 0", 1)}), std::nullopt}, {{1, {Silence::Kind::done, "has come to its end"}}});
  EXPECT_EQ(e.culprit, "rank 1 has come to its end");
}

TEST(WatchdogStandstill, SeveralCulpritsAreAllNamed) {
  const auto e = explain({rank(0, {receive("micro-batch 0", 2), reduce({1})}), rank(1, {forward()}), rank(2, {forward()})});
  EXPECT_THAT(e.culprit, AllOf(HasSubstr("rank 1 is at work"), HasSubstr("; rank 2 is at work")));
  EXPECT_THAT(e.details, HasSubstr("for rank 2 and waits in `reduce_gradients bucket 1` for rank 1"));
}

TEST(WatchdogStandstill, AMessageThatWasSentAndDidNotComeIsLost) {
  // Each waits for the other: a circle, if messages were not counted.
  RankStanding sender = rank(0, {{.instruction = "receive_gradient micro-batch 0", .peers = {1}, .from = 1}});
  RankStanding receiver = rank(1, {receive("micro-batch 2", 0)});
  sender.sent[1] = 7, receiver.received[0] = 6;
  auto e = explain({sender, receiver});
  EXPECT_EQ(
      e.culprit,
      "a message from rank 0 to rank 1 was lost: 7 were sent, 6 came, and rank 1 waits in `receive_activation micro-batch 2`");
  sender.sent[1] = 6;
  EXPECT_EQ(explain({sender, receiver}).culprit, "ranks 0, 1 wait for each other in a circle");
  sender.streams.push_back(send("micro-batch 2", 1));
  EXPECT_THAT(explain({sender, receiver}).culprit, HasSubstr("is on its way and does not arrive: the link between them hangs"));
}

TEST(WatchdogStandstill, ManyRanksDoNotFillTheScreen) {
  Answers answers;
  for (int r = 0; r < 64; ++r) answers.push_back(rank(r, {receive("micro-batch 0", (r + 1) % 64)}));
  const std::string details = explain(answers).details;
  EXPECT_LE(std::count(details.begin(), details.end(), '\n'), 17);
  EXPECT_THAT(details, HasSubstr("and 48 ranks more"));
}

TEST(WatchdogStandstill, AnswersSurviveTheirTransport) {
  RankStanding standing = rank(3, {receive("micro-batch 1", 2), forward()});
  standing.host = "node-7", standing.next = "update", standing.sent = {{2, 5'000'000'000}, {4, 1}},
  standing.received = {{2, 8}};
  const comm::Json word(standing);
  EXPECT_EQ(word.get<RankStanding>(), standing);
  EXPECT_TRUE(is_among(standing, 4));
  EXPECT_FALSE(is_among(standing, 3)) << "rank 3 itself";
  standing.rank = 0;
  EXPECT_FALSE(is_among(standing, 2)) << "its peer 2";
  for (const char* const name : {"rank", "process", "host", "next", "sent", "received", "streams"}) {
    comm::Json damaged = word;
    damaged.erase(name);
    EXPECT_THROW(static_cast<void>(damaged.get<RankStanding>()), comm::InvalidWord) << name;
  }
}

// Pipeline 2 x data 2: ranks 0 and 1 are the first stage.
TEST(WatchdogStandstill, ARankKnowsWhomItsStreamsWaitFor) {
  using parallel::InstructionKind, parallel::StreamRole;
  parallel::Program program;
  program.streams = {{StreamRole::compute, -1}, {StreamRole::reduce, -1}, {StreamRole::receive, 1}, {StreamRole::send, 1}};
  program.instructions = {
      {.kind = InstructionKind::receive_gradient, .stream = 2, .micro_batch = 0, .chunk = 0},
      {.kind = InstructionKind::backward_input, .stream = 0, .micro_batch = 0, .segment = 1, .waits = {0}},
      {.kind = InstructionKind::collective, .stream = 1, .bucket = 4, .collective = parallel::gradient_sum()}};
  runtime::ProgressBoard::Reading reading;
  reading.program = &program;
  reading.next = 2;
  reading.standings = {{program.streams[0], 1, 0}, {program.streams[1], 2, 0}, {program.streams[2], 0, 0}};
  reading.counts = {{program.streams[0], 40}, {program.streams[2], 6}, {program.streams[3], 7}};
  const parallel::Layout layout{{Axis::pipeline, 2}, {Axis::data, 2}, {Axis::tensor, 1}};
  const RankStanding standing = rank_standing(1, layout, {.first = 0, .last = 1}, reading);
  ASSERT_EQ(standing.streams.size(), 2u) << "compute only waits for the message";
  EXPECT_EQ(standing.streams[0].instruction, to_string(program.at(2)));
  EXPECT_THAT(standing.streams[0].peers, ElementsAre(0));
  EXPECT_EQ(standing.streams[1].instruction, to_string(program.at(0)));
  EXPECT_THAT(standing.streams[1].peers, ElementsAre(3));
  EXPECT_EQ(standing.streams[1].from, 3);
  EXPECT_EQ(standing.next, to_string(program.at(2)));
  EXPECT_EQ(standing.process, ::getpid());
  EXPECT_EQ(standing.sent, (std::map<int, std::uint64_t>{{3, 7}}));
  EXPECT_EQ(standing.received, (std::map<int, std::uint64_t>{{3, 6}}));
}

TEST(WatchdogStandstill, TensorPeersAreWaitedForInExchangesOnly) {
  parallel::Program program;
  program.streams = {{parallel::StreamRole::compute, -1}, {parallel::StreamRole::exchange, -1}};
  program.instructions = {{.kind = parallel::InstructionKind::forward, .micro_batch = 0, .segment = 1},
                          {.kind = parallel::InstructionKind::collective,
                           .stream = 1,
                           .micro_batch = 1,
                           .segment = 2,
                           .collective = parallel::row_collective(Operation::sum, model::PassTensor::product,
                                                                  {parallel::BufferKind::product, 0, 0})}};
  runtime::ProgressBoard::Reading reading;
  reading.program = &program;
  reading.standings = {{program.streams[0], 0, 0}, {program.streams[1], 1, 0}};
  const auto streams = rank_standing(0, parallel::make_layout(1, 1, 2), {}, reading).streams;
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_TRUE(streams[0].peers.empty());
  EXPECT_THAT(streams[1].peers, ElementsAre(1));
}

TEST(WatchdogProcessState, SeesWhatAProcessIsUpTo) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const auto becomes = [&](ProcessState state) {
    for (int n = 0; n < 500 && process_state(child) != state; ++n) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return process_state(child) == state;
  };
  EXPECT_TRUE(becomes(ProcessState::runs));
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(becomes(ProcessState::stopped));
  ::kill(child, SIGKILL);
  EXPECT_TRUE(becomes(ProcessState::ended)) << "a zombie";
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(process_state(child), ProcessState::ended);
}

TEST(WatchdogProcessState, AnotherProcessOfTheSameNumberIsNotIt) {
  const auto self = comm::p2p::this_process();
  EXPECT_EQ(process_state(self.process, self.start), ProcessState::runs);
  EXPECT_EQ(process_state(self.process, self.start + "0"), ProcessState::ended);
}

}  // namespace
}  // namespace plait::launch
