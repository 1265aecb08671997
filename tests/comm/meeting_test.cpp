// What ranks tell each other: gathered, agreed on, awaited; and what is not believed.
#include "comm/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>

#include "core/error.h"
#include "core/error_of.h"
#include "rank_threads.h"
#include "rendezvous_kinds.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

class MeetingKind : public EveryRendezvous {
 protected:
  // Runs `body` as `size` ranks that meet.
  std::vector<std::string> ranks(int size, const std::function<void(Meeting&)>& body) {
    return outcome_of_ranks(size, [&](int rank) {
      const auto mine = store();
      Meeting meeting(*mine, "test", rank, size, seconds(30));
      body(meeting);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, MeetingKind, rendezvous_kinds(), rendezvous_kind);

TEST_P(MeetingKind, GathersEverybodysWord) {
  const auto outcome = ranks(4, [](Meeting& meeting) {
    const int rank = meeting.rank();
    EXPECT_THAT(meeting.gather("square", rank * rank), ElementsAre(0, 1, 4, 9));
    const auto on_two = meeting.gather_on(2, "name", std::string(static_cast<std::size_t>(rank), 'x'));
    if (rank == 2) {
      EXPECT_THAT(on_two, ElementsAre("", "x", "xx", "xxx"));
    } else {
      EXPECT_THAT(on_two, IsEmpty());
    }
    EXPECT_EQ(meeting.tell(3, "who", [&] { return rank; }), 3) << "only the teller's counts";
    EXPECT_EQ(meeting.least("free", std::size_t{100} - static_cast<std::size_t>(rank)), 97u);
    EXPECT_EQ(meeting.greatest("time", 0.5 * rank), 1.5);
    EXPECT_EQ(meeting.gather("list", std::vector<double>{1.0, 0.5 * rank}).at(3), (std::vector<double>{1.0, 1.5}));
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(MeetingKind, HoldsUntilTheLastHasCome) {
  std::atomic<int> arrived = 0;
  const auto outcome = ranks(4, [&](Meeting& meeting) {
    if (meeting.rank() == 3) {
      while (arrived < 3) std::this_thread::yield();
    }
    ++arrived;
    meeting.meet("start");
    EXPECT_EQ(arrived, 4);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(MeetingKind, NamesWhoDoesNotCome) {
  const auto mine = store();
  Meeting meeting(*mine, "test", 0, 4, milliseconds(30));
  Meeting(*mine, "test", 2, 4, milliseconds(30)).say("alone", Json());
  EXPECT_THAT(
      error_of<CommError>([&] { meeting.meet("alone"); }),
      AllOf(HasSubstr("'test/alone/1', 'test/alone/3'"), HasSubstr("within 30 ms"), HasSubstr("ranks 1, 3 did not start")));
  EXPECT_THAT(error_of<CommError>([&] { meeting.hear<Json>("alone", 1); }),
              AllOf(HasSubstr("'test/alone/1'"), HasSubstr("within 30 ms"), HasSubstr("rank 1 did not start")));
}

// Who reads what the others say has no word of its own, and is not the one that is missing.
TEST_P(MeetingKind, WhoGathersDoesNotNameItself) {
  const auto mine = store();
  Meeting meeting(*mine, "test", 0, 3, milliseconds(30));
  Meeting(*mine, "test", 1, 3, milliseconds(30)).say("read", 1);
  EXPECT_THAT(error_of<CommError>([&] { meeting.gather_on(0, "read", 0); }), HasSubstr("; rank 2 did not start"));
}

// Whichever it is that does not come, the first, who passes on what all say, or another.
TEST_P(MeetingKind, EverybodyElseNamesWhoDoesNotCome) {
  for (const int lost : {0, 2}) {
    const auto outcome = outcome_of_ranks(4, [&](int rank) {
      if (rank == lost) return;
      const auto mine = store();
      Meeting(*mine, "without " + std::to_string(lost), rank, 4, milliseconds(1500)).meet("all");
    });
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(outcome[static_cast<std::size_t>(rank)],
                  rank == lost ? testing::Matcher<std::string>(IsEmpty())
                               : AllOf(HasSubstr("'without " + std::to_string(lost) + "/all/" + std::to_string(lost) + "'"),
                                       HasSubstr("rank " + std::to_string(lost) + " did not start")));
    }
  }
}

// A store that counts the questions and the words that it gets.
class CountingRendezvous final : public Rendezvous {
 public:
  bool try_set(const std::string& key, const std::string& value) override { return ++asked, inner_->try_set(key, value); }
  std::optional<std::string> wait(const std::string& key, milliseconds timeout) override {
    return ++asked, inner_->wait(key, timeout);
  }
  std::optional<std::string> find(const std::string& key) override { return ++asked, inner_->find(key); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

  std::atomic<int> asked = 0;

 private:
  std::shared_ptr<Rendezvous> inner_ = make_thread_rendezvous();
};

// A thousand ranks that meet must not ask the one that keeps their words a million questions.
TEST(Meeting, GatheringAsksAFewQuestionsOfEachRank) {
  constexpr int size = 64;
  CountingRendezvous store;
  const auto outcome = outcome_of_ranks(size, [&](int rank) {
    Meeting meeting(store, "large", rank, size, seconds(30));
    EXPECT_EQ(meeting.greatest("rank", rank), size - 1);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
  EXPECT_LE(store.asked, 6 * size);
}

TEST_P(MeetingKind, NamesWhoDisagrees) {
  const auto outcome = ranks(3, [](Meeting& meeting) {
    meeting.agree("same", {{"size", 8}});
    meeting.agree("other", {{"size", meeting.rank() == 2 ? 9 : 8}});
  });
  EXPECT_THAT(outcome, Each(AllOf(HasSubstr("'test/other'"), HasSubstr("rank 0 says {\"size\":8}"),
                                  HasSubstr("rank 2 says {\"size\":9}"))));
}

TEST_P(MeetingKind, MembersAreRanksOfTheJob) {
  const auto outcome = outcome_of_ranks(2, [&](int index) {
    const auto mine = store();
    Meeting pair(*mine, "pair", index == 0 ? 7 : 3, {7, 3}, seconds(30));
    EXPECT_EQ(pair.peer(), index == 0 ? 3 : 7);
    EXPECT_THAT(pair.gather("rank", pair.rank()), ElementsAre(7, 3));
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
  const auto mine = store();
  EXPECT_THROW(Meeting(*mine, "pair", 4, {7, 3}, seconds(1)), InternalError);
}

TEST_P(MeetingKind, AWordIsSaidOnceAndTheFirstOfAllStays) {
  std::atomic<int> winners = 0;
  const auto outcome = ranks(4, [&](Meeting& meeting) {
    meeting.say("once", 1);
    EXPECT_FALSE(meeting.try_say("once", 2));
    EXPECT_THROW(meeting.say("once", 2), CommError);
    EXPECT_EQ(meeting.hear<int>("once", meeting.rank()), 1);
    const int first = meeting.first("race", meeting.rank());
    if (first == meeting.rank()) ++winners;
    EXPECT_EQ(meeting.first<int>("race"), first);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
  EXPECT_EQ(winners, 1);
}

TEST_P(MeetingKind, WhatWasSaidCanBeHeardAfterAnAbort) {
  const auto mine = store();
  Meeting meeting(*mine, "test", 0, 2, seconds(30));
  EXPECT_EQ(meeting.heard<int>("word", 0), std::nullopt);
  meeting.say("word", 5);
  mine->abort("rank 1: out of memory");
  EXPECT_EQ(meeting.heard<int>("word", 0), 5);
  EXPECT_EQ(meeting.hear<int>("word", 0), 5) << "so that all ranks see what one of them may have ended for";
  EXPECT_THAT(error_of<CommError>([&] { meeting.hear<int>("word", 1); }), HasSubstr("rank 1: out of memory"));
  EXPECT_THAT(error_of<CommError>([&] { meeting.check(); }), HasSubstr("rank 1: out of memory"));
}

// A peer may be of another version, damaged, or hostile.
TEST_P(MeetingKind, WhatAPeerSaysIsNotBelieved) {
  const auto mine = store();
  Meeting meeting(*mine, "test", 0, 2, seconds(30));
  const auto refusal_of = [&](const std::string& topic, const std::string& text, const auto& kind, std::size_t most) {
    mine->set(meeting.key(topic, 1), text);
    return error_of<CommError>([&] { meeting.hear<std::decay_t<decltype(kind)>>(topic, 1, most); });
  };
  const auto is_of_peer = [](const std::string& topic, const std::string& fault) {
    return AllOf(HasSubstr("rank 1 sent something unusable for 'test/" + topic + "/1'"), HasSubstr(fault));
  };
  const std::size_t most = Meeting::usual_bytes;
  EXPECT_THAT(refusal_of("nothing", "", 0, most), is_of_peer("nothing", "it is not JSON"));
  EXPECT_THAT(refusal_of("cut", "[1, 2", std::vector<int>(), most), is_of_peer("cut", "it is not JSON"));
  EXPECT_THAT(refusal_of("tail", "1 2", 0, most), is_of_peer("tail", "it is not JSON"));
  EXPECT_THAT(refusal_of("kind", "\"text\"", 0, most), is_of_peer("kind", "does not fit the expected integer type"));
  EXPECT_THAT(refusal_of("fraction", "1.5", 0, most), is_of_peer("fraction", "does not fit the expected integer type"));
  EXPECT_THAT(refusal_of("range", "4294967296", 0, most), is_of_peer("range", "does not fit the expected integer type"));
  EXPECT_THAT(refusal_of("sign", "-1", std::size_t{0}, most), is_of_peer("sign", "does not fit the expected integer type"));
  EXPECT_THAT(refusal_of("null", "null", 0.0, most), is_of_peer("null", "must be number"));
  EXPECT_THAT(refusal_of("list", "{\"a\": 1}", std::vector<int>(), most), is_of_peer("list", "must be array"));
  EXPECT_THAT(refusal_of("long", "\"" + std::string(100, 'x') + "\"", std::string(), 101),
              is_of_peer("long", "102 bytes long; at most 101 are allowed"));
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(refusal_of("deep", deep, Json(), most), is_of_peer("deep", "it is nested deeper than 100 levels"));
  EXPECT_EQ(refusal_of("good", std::string(20, '[') + std::string(20, ']'), Json(), most), nothing_thrown);
}

TEST_P(MeetingKind, WordsOfDriversNeedNotBeUtf8) {
  const auto mine = store();
  Meeting meeting(*mine, "test", 0, 1, seconds(30));
  meeting.say("words", std::string("caf\xe9"));
  EXPECT_EQ(meeting.hear<std::string>("words", 0), "caf\xef\xbf\xbd");
}

// Be it the first, who passes on what all say, or one that the first waits for.
TEST(Meeting, AllWaitForWhoIsBusy) {
  for (const int slow : {0, 1}) {
    const auto store = make_thread_rendezvous();
    const auto outcome = outcome_of_ranks(3, [&](int rank) {
      Meeting meeting(*store, "test", rank, 3, milliseconds(600));
      if (rank == slow) {
        const auto busy = meeting.busy();
        std::this_thread::sleep_for(milliseconds(1600));
      }
      EXPECT_THAT(meeting.gather("done", 10 * rank), ElementsAre(0, 10, 20));
    });
    EXPECT_THAT(outcome, Each(IsEmpty())) << slow;
  }
}

// Also when the limit has passed while another was waited for.
TEST(Meeting, WhoIsBusyLongerThanAnotherIsWaitedFor) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(4, [&](int rank) {
    Meeting meeting(*store, "test", rank, 4, milliseconds(600));
    if (rank > 0) {
      const auto busy = meeting.busy();
      std::this_thread::sleep_for(milliseconds(1200 + 400 * rank));
    }
    EXPECT_THAT(meeting.gather("done", rank), ElementsAre(0, 1, 2, 3));
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(MeetingKind, WhoIsBusyIsWaitedFor) {
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    const auto mine = store();
    Meeting meeting(*mine, "test", rank, 2, milliseconds(rank == 0 ? 600 : 40));  // one says so ten times as often
    if (rank == 1) {
      const auto busy = meeting.busy();
      // The other one's limit has long passed when so many signs of life are there.
      for (int beat = 0; beat < 80; ++beat) mine->get("test/busy/1/" + std::to_string(beat), seconds(30));
    }
    meeting.say("done", rank);
    EXPECT_EQ(meeting.hear<int>("done", 1), 1);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(MeetingKind, WhoIsBusyNoLongerIsNot) {
  const auto mine = store();
  for (int times = 0; times < 2; ++times) {
    Meeting peer(*mine, "test", 1, 2, milliseconds(4));
    const auto busy = peer.busy();
    mine->get("test/busy/1/" + std::to_string(5 * times + 4), seconds(30));
  }
  Meeting meeting(*mine, "test", 0, 2, milliseconds(30));
  const auto start = Clock::now();
  EXPECT_THAT(error_of<CommError>([&] { meeting.hear<int>("word", 1); }), HasSubstr("'test/word/1'"));
  EXPECT_LT(Clock::now() - start, seconds(20));
}

TEST_P(MeetingKind, AnAbortEndsTheWaitForOneThatIsBusy) {
  const auto mine = store();
  Meeting peer(*mine, "test", 1, 2, milliseconds(40));
  const auto busy = peer.busy();
  auto waiter = std::async(std::launch::async, [&] {
    const auto own = store();
    Meeting meeting(*own, "test", 0, 2, milliseconds(400));
    return error_of<CommError>([&] { meeting.hear<int>("word", 1); });
  });
  mine->get("test/busy/1/20", seconds(30));
  mine->abort("rank 1 failed");
  EXPECT_THAT(waiter.get(), HasSubstr("rank 1 failed"));
}

TEST(Meeting, ObjectsCrossBetweenThreads) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting(*store, "test", rank, 2, seconds(30));
    if (rank == 0) return meeting.give_object("number", std::make_shared<int>(42));
    EXPECT_EQ(*std::static_pointer_cast<int>(meeting.take_object("number", 0)), 42);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST(Fields, BytesAreExactlyWhatWasWritten) {
  const std::array<std::byte, 3> bytes{std::byte{0}, std::byte{0xa7}, std::byte{0xff}};
  EXPECT_EQ(to_hex(bytes), "00a7ff");
  std::array<std::byte, 3> back{};
  bytes_from_hex("00a7ff", back);
  EXPECT_EQ(back, bytes);
  for (const char* const text : {"", "00a7f", "00a7ff0", "00A7ff", "00g7ff", "00 7ff"}) {
    EXPECT_THROW(bytes_from_hex(text, back), InvalidWord) << text;
  }
}

}  // namespace
}  // namespace plait::comm::test
