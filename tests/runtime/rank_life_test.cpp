// The states of a rank: the threads that change them, their order, and the promise of each.
#include "runtime/rank_life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/error.h"

namespace plait::runtime {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using State = RankLife::State;

constexpr milliseconds for_good{60'000};

void nothing() {}

template <typename Exception>
std::string thrown_by(const std::function<void()>& work) {
  try {
    work();
  } catch (const Exception& error) {
    EXPECT_EQ(typeid(error), typeid(Exception));
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(RankLife, ARankThatComesToItsEndWasNeverAborted) {
  RankLife life;
  int released = 0;
  life.on_abort([&] { ++released; });
  EXPECT_EQ(life.state(), State::running);
  EXPECT_EQ(life.run([] { return 7; }, nothing), 7);
  EXPECT_EQ(life.state(), State::running);
  life.retire();
  life.abort("too late");
  EXPECT_EQ(life.state(), State::retired);
  EXPECT_FALSE(life.is_aborted());
  EXPECT_EQ(released, 0);
  EXPECT_NO_THROW(life.check());
}

TEST(RankLife, TheFirstReasonStaysAndReleasesRunOnce) {
  RankLife life;
  int first = 0, second = 0, late = 0;
  life.on_abort([&] { ++first; });
  life.on_abort([&] { ++second; });
  life.abort("rank 1 is gone");
  life.abort("another reason");
  EXPECT_EQ(life.state(), State::aborted);
  EXPECT_EQ(std::pair(first, second), std::pair(1, 1));
  EXPECT_EQ(thrown_by<CommError>([&] { life.check(); }), "rank 1 is gone");
  life.on_abort([&] { ++late; });
  EXPECT_EQ(late, 1) << "registered after the abort: at once";
}

TEST(RankLife, AnErrorGoesThroughTheStatesInOrder) {
  RankLife life(3);
  std::vector<State> seen;
  life.on_abort([&] { seen.push_back(life.state()); });
  EXPECT_EQ(thrown_by<ConfigError>(
                [&] { life.run([] { throw ConfigError("no such file"); }, [&] { seen.push_back(life.state()); }); }),
            "no such file");
  seen.push_back(life.state());
  EXPECT_THAT(seen, ElementsAre(State::aborted, State::aborted, State::drained)) << "released, drained, thrown";
  EXPECT_EQ(life.failure()->what, "no such file");
  EXPECT_FALSE(life.failure()->of_communication);
  EXPECT_EQ(life.reason(), "rank 3 failed: no such file");
}

TEST(RankLife, WhatDrainingThrowsDoesNotHideTheError) {
  RankLife life;
  EXPECT_EQ(thrown_by<DeviceError>([&] {
              life.run([] { throw DeviceError("out of memory"); }, [] { throw CommError("the stream failed too"); });
            }),
            "out of memory");
}

TEST(RankLife, EveryNestedRunDrainsItsOwnStreams) {
  RankLife life;
  std::vector<int> drained;
  EXPECT_EQ(thrown_by<Error>([&] {
              life.run([&] { life.run([] { throw Error("x"); }, [&] { drained.push_back(1); }); },
                       [&] { drained.push_back(2); });
            }),
            "x");
  EXPECT_THAT(drained, ElementsAre(1, 2));
}

TEST(RankLife, AnErrorOfCommunicationIsReplacedByWhatIsBehindIt) {
  RankLife life;
  life.set_watched(for_good);
  std::jthread watchdog([&](std::stop_token stop) {
    life.wait_for(State::failed, for_good, stop);
    EXPECT_EQ(life.state(), State::failed) << "nothing has been let go yet";
    EXPECT_TRUE(life.failure()->of_communication);
    life.abort("rank 1 was killed");
  });
  EXPECT_EQ(thrown_by<CommError>([&] { life.run([] { throw PeerLostError("lost rank 1"); }, nothing); }), "rank 1 was killed");
}

TEST(RankLife, AnErrorOfCommunicationKeepsItsClassWhereNothingIsBehindIt) {
  RankLife unwatched, watched;
  watched.set_watched(milliseconds(20));  // its watchdog never answers
  for (RankLife* life : {&unwatched, &watched}) {
    EXPECT_EQ(thrown_by<PeerLostError>([&] { life->run([] { throw PeerLostError("lost rank 1"); }, nothing); }), "lost rank 1");
    EXPECT_EQ(life->reason(), "rank 0 failed: lost rank 1");
  }
}

TEST(RankLife, AnErrorOfItsOwnIsThrownWhateverTheReasonForTheAbort) {
  RankLife life;
  life.abort("rank 1 was killed");
  EXPECT_EQ(thrown_by<DeviceError>([&] { life.run([] { throw DeviceError("no memory"); }, nothing); }), "no memory");
  EXPECT_FALSE(life.failure()) << "another had ended it";
  RankLife other;
  other.abort("rank 1 was killed");
  EXPECT_EQ(thrown_by<CommError>([&] { other.run([] { throw CommError("aborted"); }, nothing); }), "rank 1 was killed");
}

TEST(RankLife, AllRanksOfAProcessKnowTheReasonBeforeAnythingIsLetGo) {
  const auto lives = make_rank_lives(3);
  std::vector<std::string> reasons;
  for (const auto& life : lives) {
    life->on_abort([&] {
      for (const auto& each : lives) reasons.push_back(each->reason());
    });
  }
  lives[1]->abort("out of memory");
  EXPECT_EQ(reasons, std::vector<std::string>(9, "out of memory"));
  lives[0]->retire();
  lives[2]->abort("and more");
  EXPECT_EQ(lives[2]->reason(), "out of memory");
}

TEST(RankLife, AnAbortOfOthersPassesByARankThatHasRetired) {
  const auto lives = make_rank_lives(2);
  bool released = false;
  lives[0]->on_abort([&] { released = true; });
  lives[0]->retire();
  lives[1]->abort("too late for rank 0");
  EXPECT_FALSE(released);
  EXPECT_FALSE(lives[0]->is_aborted());
}

TEST(RankLife, RetiringWaitsForThoseWhoLook) {
  RankLife life;
  std::atomic<bool> looking = false, may_end = false, looked = false;
  std::jthread watchdog([&] {
    life.while_in_use([&] {
      looking = true;
      while (!may_end) std::this_thread::yield();
      looked = true;
      return 0;
    });
  });
  while (!looking) std::this_thread::yield();
  std::jthread end([&] { may_end = true; });
  life.retire();
  EXPECT_TRUE(looked);
  EXPECT_FALSE(life.while_in_use([] { return 0; })) << "nobody looks any more";
}

// Under ThreadSanitizer: many abort, one looks, one fails.
TEST(RankLife, FromAnyThread) {
  const auto lives = make_rank_lives(2);
  std::atomic<int> released = 0;
  for (const auto& life : lives) life->on_abort([&] { ++released; });
  std::vector<std::jthread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] { lives[static_cast<std::size_t>(n % 2)]->abort("thread " + std::to_string(n)); });
  }
  threads.emplace_back([&] {
    EXPECT_THROW(lives[1]->run([] { throw Error("x"); }, nothing), Error);
    lives[1]->retire();
  });
  while (!lives[0]->is_aborted()) static_cast<void>(lives[0]->while_in_use([] { return 0; }));
  threads.clear();
  EXPECT_EQ(lives[0]->state(), State::aborted);
  EXPECT_EQ(lives[1]->state(), State::retired);
  EXPECT_EQ(released, 2);
}

}  // namespace
}  // namespace plait::runtime
