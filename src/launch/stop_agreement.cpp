#include "launch/stop_agreement.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/stoppable_wait.h"

namespace plait::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds look_interval{20};  // for signals, and for words once there is a wish
constexpr milliseconds unwinding_time{1'000};
constexpr std::int64_t all_boundaries = std::numeric_limits<std::int64_t>::max() - 1;

// The rank that wants the stop, and its signal.
struct StopWish {
  int rank = 0, signal = 0;
};

void declare(auto& field, Of<StopWish> auto& wish) {
  field("rank", wish.rank, record::whole(0, std::numeric_limits<int>::max()));
  field("signal", wish.signal, record::whole(0, SIGRTMAX));
}

}  // namespace

class StopAgreement::Talk {
 public:
  Talk(const StopSignals& signals, const RankContext& rank, milliseconds timeout)
      : signals_(signals),
        rank_(rank.rank),
        life_(rank.life),
        store_(rank.rendezvous),
        meeting_(rank.meeting("stop", timeout)),
        words_(static_cast<std::size_t>(rank.size)) {}

  void start() {
    thread_ = std::jthread([this](std::stop_token stop) { talk(stop); });
    // Uses its own thread, since the other may wait for the store.
    second_signal_ = std::jthread([this](std::stop_token stop) {
      const StopSignals::Attendance attendance;
      while (!stop.stop_requested() && signals_.wish() != Stop::at_once) wait_for_stop(stop, look_interval);
      if (!stop.stop_requested()) end_at_once(stop);
    });
  }

  bool stop_here() {
    std::unique_lock lock(mutex_);
    if (!said_ && signals_.wish() != Stop::none) hold();
    changed_.wait(lock, [this] { return !said_ || stop_at_ || released_ || failed_; });
    if (said_ && failed_) throw CommError(*failed_);
    if (released_) {
      lock.unlock();
      life_->check();
      lock.lock();
    }
    if (stop_at_ && passed_ + 1 >= *stop_at_) return true;
    ++passed_;
    return false;
  }

  void release() {
    {
      std::lock_guard lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
  }

  void leave() noexcept {
    for (std::jthread* thread : {&thread_, &second_signal_}) {
      thread->request_stop();
      if (thread->joinable()) thread->join();
    }
    std::lock_guard lock(mutex_);
    if (spoken_) return;
    spoken_ = true;
    try {
      meeting_.try_say("passed", said_.value_or(all_boundaries));
    } catch (const std::exception&) {
      return;  // the store is gone with the job
    }
  }

  std::string reason() const {
    std::lock_guard lock(mutex_);
    if (const int own = signals_.signal()) return describe_signal(own);
    return wish_ ? fmt::format("{} on rank {}", describe_signal(wish_->signal), wish_->rank) : "no signal";
  }

 private:
  // mutex_ is held.
  void hold() {
    said_ = passed_;
    changed_.notify_all();
  }

  void talk(std::stop_token stop) {
    try {
      const milliseconds ask_interval = std::clamp(meeting_.timeout() / 100, look_interval, milliseconds(500));
      auto asked = Clock::now();
      std::optional<Clock::time_point> deadline;
      while (!stop.stop_requested() && signals_.wish() != Stop::at_once) {
        if (!deadline && (signals_.wish() != Stop::none || Clock::now() - asked >= ask_interval)) {
          asked = Clock::now();
          if (is_wished()) {
            speak();
            deadline = Clock::now() + meeting_.timeout();
          }
        }
        if (deadline && hear(*deadline)) break;
        wait_for_stop(stop, look_interval);
      }
    } catch (const std::exception& error) {
      give_up(error.what());
    }
  }

  // True if this process, or a rank before it, wishes to stop.
  bool is_wished() {
    const bool own = signals_.wish() != Stop::none;
    const auto wish =
        own ? std::optional(meeting_.first("wish", StopWish{rank_, signals_.signal()})) : meeting_.first<StopWish>("wish");
    std::lock_guard lock(mutex_);
    wish_ = wish;
    return wish.has_value();
  }

  void speak() {
    std::int64_t passed = 0;
    {
      std::lock_guard lock(mutex_);
      if (!said_) hold();
      passed = *said_;
      spoken_ = true;
    }
    meeting_.say("passed", passed);
  }

  // True once all ranks have said their word.
  bool hear(Clock::time_point deadline) {
    for (std::size_t rank = 0; rank < words_.size(); ++rank) {
      if (!words_[rank]) words_[rank] = meeting_.heard<std::int64_t>("passed", static_cast<int>(rank));
      if (words_[rank]) continue;
      if (Clock::now() >= deadline) {
        throw CommError(fmt::format("rank {} did not say within {} s where it can stop for {}", rank,
                                    std::chrono::duration<double>(meeting_.timeout()).count(), reason()));
      }
      return false;
    }
    {
      std::lock_guard lock(mutex_);
      stop_at_ = **std::max_element(words_.begin(), words_.end()) + 1;
    }
    changed_.notify_all();
    return true;
  }

  // The rank's thread may be waiting for an agreement that does not come, or be about to.
  void give_up(const std::string& why) noexcept {
    {
      std::lock_guard lock(mutex_);
      if (stop_at_) return;
      if (!said_) {  // it continues, unless there is a signal
        failed_ = "ranks cannot agree where to stop: " + why;
        return;
      }
    }
    life_->abort(why);
    store_->abort(why);
  }

  void end_at_once(std::stop_token stop) {
    const std::string why = "ended at once by a second signal";
    life_->abort(why);
    store_->abort(why);
    wait_for_stop(stop, unwinding_time);
    if (stop.stop_requested()) return;
    message_to_stderr(fmt::format("rank {}: {}: does not end by itself: ending the process", rank_, why));
    std::fflush(nullptr);
    end_by(signals_.signal());
  }

  const StopSignals& signals_;
  const int rank_;
  const std::shared_ptr<runtime::RankLife> life_;
  const std::shared_ptr<comm::Rendezvous> store_;
  comm::Meeting meeting_;
  std::vector<std::optional<std::int64_t>> words_;  // by rank; used by the thread

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::int64_t passed_ = 0;           // boundaries
  std::optional<std::int64_t> said_;  // value of passed_ when asked; no further boundary is passed until there is an agreement
  std::optional<std::int64_t> stop_at_;  // the agreement
  std::optional<StopWish> wish_;
  std::optional<std::string> failed_;  // the reason why no agreement is possible
  bool spoken_ = false;                // its word is in the meeting, or about to be
  bool released_ = false;              // the rank's life was aborted

  std::jthread thread_, second_signal_;  // last: they use everything above
};

StopAgreement::StopAgreement(const StopSignals& signals, const RankContext& rank, milliseconds timeout)
    : talk_(std::make_shared<Talk>(signals, rank, timeout)) {
  rank.life->on_abort([talk = std::weak_ptr(talk_)] {
    if (const auto alive = talk.lock()) alive->release();
  });
  talk_->start();
}

StopAgreement::~StopAgreement() { talk_->leave(); }

bool StopAgreement::stop_here() { return talk_->stop_here(); }
void StopAgreement::leave() noexcept { talk_->leave(); }
std::string StopAgreement::reason() const { return talk_->reason(); }

}  // namespace plait::launch
