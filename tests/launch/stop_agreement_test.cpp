// Ranks are threads that pass boundaries as fast as they can, some ahead of others.
#include "launch/stop_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/error_of.h"
#include "launch_fixtures.h"

namespace plait::launch::test {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::HasSubstr;

constexpr int ranks = 4;
constexpr std::int64_t in_flight = 8;  // steps that a rank may be ahead of what all have issued, as in training

class StopAgreementTest : public testing::Test {
 protected:
  RankContext context(int rank) const {
    RankContext context;
    context.rank = rank;
    context.size = ranks;
    context.rendezvous = store_;
    context.life = lives_[static_cast<std::size_t>(rank)];
    return context;
  }

  std::int64_t slowest() const {
    std::int64_t least = passed_[0];
    for (const auto& passed : passed_) least = std::min(least, passed.load());
    return least;
  }
  std::int64_t fastest() const {
    std::int64_t most = 0;
    for (const auto& passed : passed_) most = std::max(most, passed.load());
    return most;
  }

  // All ranks come to `boundaries` boundaries, or stop; `disturb` is called when they are under way. Returns how many each has
  // passed.
  template <typename Disturb>
  std::vector<std::int64_t> run(std::int64_t boundaries, Disturb disturb) {
    std::vector<std::int64_t> end(ranks, -1);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([this, rank, boundaries, &end] {
        const RankContext here = context(rank);
        StopAgreement agreement(signals_, here, std::chrono::seconds(60));
        std::minstd_rand random(static_cast<unsigned>(rank) + 1);
        std::atomic<std::int64_t>& passed = passed_[static_cast<std::size_t>(rank)];
        while (passed < boundaries) {
          // As a rank whose device needs the others' steps.
          while (passed >= slowest() + in_flight) std::this_thread::yield();
          if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
          if (agreement.stop_here()) break;
          ++passed;
        }
        end[static_cast<std::size_t>(rank)] = passed;
        passed = std::max<std::int64_t>(passed, boundaries);  // nobody waits for it now
      });
    }
    while (slowest() < 3) std::this_thread::yield();
    disturb();
    threads.clear();
    return end;
  }

  const StopSignals signals_;
  std::shared_ptr<comm::Rendezvous> store_ = comm::make_thread_rendezvous();
  std::vector<std::shared_ptr<runtime::RankLife>> lives_ = runtime::make_rank_lives(ranks);
  std::array<std::atomic<std::int64_t>, ranks> passed_{};
};

constexpr std::int64_t endless = 1'000'000'000;

class StopAgreementSeed : public StopAgreementTest, public testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, StopAgreementSeed, testing::Range(0u, 20u));

TEST_P(StopAgreementSeed, AllStopAtTheNextBoundaryOfTheFastest) {
  std::int64_t most = 0;
  const std::vector<std::int64_t> end = run(endless, [&] {
    std::minstd_rand random(GetParam() + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    std::raise(SIGTERM);
    most = fastest();
  });
  EXPECT_THAT(end, Each(end[0]));
  EXPECT_LE(end[0], most + 1) << "went on";  // one may have passed a boundary, and not yet have counted it
}

TEST_P(StopAgreementSeed, OneThatHearsOfItTakesTheOthersWithIt) {
  const std::vector<std::int64_t> end = run(endless, [&] {
    // The word of a rank whose process got a signal. This process got none.
    context(2).meeting("stop", {}).first("wish", comm::Json{{"rank", 2}, {"signal", SIGUSR1}});
  });
  EXPECT_THAT(end, Each(end[0]));
  EXPECT_LT(end[0], endless);
}

TEST_F(StopAgreementTest, OnesThatHaveComeToTheEndDoNotStop) {
  EXPECT_THAT(run(50, [] {}), Each(50));
}

TEST_F(StopAgreementTest, AfterTheEndOfOneNobodyStops) {
  RankContext late = context(3);
  std::vector<std::unique_ptr<StopAgreement>> others;
  for (int rank = 0; rank < 3; ++rank) {
    others.push_back(std::make_unique<StopAgreement>(signals_, context(rank), std::chrono::seconds(60)));
    EXPECT_FALSE(others.back()->stop_here());
    others.back()->leave();
  }
  StopAgreement agreement(signals_, late, std::chrono::seconds(60));
  std::raise(SIGTERM);
  EXPECT_FALSE(agreement.stop_here()) << "the others have passed all boundaries that there are";
}

TEST_F(StopAgreementTest, ARankThatSaysNothingIsNamed) {
  const RankContext here = context(0);
  StopAgreement agreement(signals_, here, milliseconds(200));
  std::raise(SIGINT);
  EXPECT_THAT(error_of<CommError>([&] { agreement.stop_here(); }),
              testing::StartsWith("rank 1 did not say within 0.2 s where it can stop for signal 2 (Interrupt)"));
  EXPECT_TRUE(here.life->is_aborted());
}

TEST_F(StopAgreementTest, AnAbortEndsTheWaitForTheOthers) {
  const RankContext here = context(0);
  StopAgreement agreement(signals_, here, std::chrono::seconds(60));
  std::raise(SIGTERM);
  std::jthread aborter([&] {
    std::this_thread::sleep_for(milliseconds(50));
    lives_[1]->abort("rank 1 was killed");
  });
  EXPECT_EQ(error_of<CommError>([&] { agreement.stop_here(); }), "rank 1 was killed");
}

TEST_F(StopAgreementTest, ASecondSignalAbortsTheRank) {
  const RankContext here = context(0);
  StopAgreement agreement(signals_, here, std::chrono::seconds(60));
  std::raise(SIGTERM);
  std::jthread second([&] {
    std::this_thread::sleep_for(StopSignals::same_wish + milliseconds(50));
    std::raise(SIGTERM);
  });
  EXPECT_THAT(error_of<CommError>([&] { agreement.stop_here(); }), HasSubstr("second signal"));
}

// A rendezvous in a directory whose disk is full.
class FullStore final : public comm::Rendezvous {
 public:
  bool try_set(const std::string&, const std::string&) override { throw CommError("no space left"); }
  std::optional<std::string> wait(const std::string&, milliseconds) override { return std::nullopt; }
  std::optional<std::string> find(const std::string&) override { return std::nullopt; }
  void abort(const std::string&) noexcept override {}
};

TEST_F(StopAgreementTest, ARankThatCannotAskTheOthersEndsInsteadOfWaiting) {
  RankContext here = context(0);
  here.rendezvous = std::make_shared<FullStore>();
  StopAgreement agreement(signals_, here, std::chrono::seconds(60));
  EXPECT_FALSE(agreement.stop_here());
  std::raise(SIGTERM);
  std::this_thread::sleep_for(milliseconds(200));  // its thread has tried by then, or is told when it does
  EXPECT_THAT(error_of<CommError>([&] { agreement.stop_here(); }), HasSubstr("no space left"));
}

const plait::test::ChildProcess hangs("StopAgreementHangs", [] {
  const StopSignals signals;
  RankContext here;
  here.rendezvous = comm::make_thread_rendezvous();
  here.life = runtime::make_rank_lives(1).front();
  StopAgreement agreement(signals, here, std::chrono::seconds(60));
  std::raise(SIGTERM);
  std::this_thread::sleep_for(StopSignals::same_wish + milliseconds(50));
  std::raise(SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(30));
});

TEST(StopAgreement, ARankThatDoesNotEndIsEnded) { EXPECT_TRUE(was_killed_by(run_child(hangs), SIGTERM)); }

}  // namespace
}  // namespace plait::launch::test
