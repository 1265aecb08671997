#include "runtime/rank_life.h"

#include <algorithm>

#include "core/error.h"

namespace plait::runtime {

RankLife::State RankLife::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

std::string RankLife::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

std::optional<RankLife::Failure> RankLife::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void RankLife::check() const {
  std::lock_guard lock(mutex_);
  if (!reason_.empty()) throw CommError(reason_);
}

void RankLife::advance(State state) {
  {
    std::lock_guard lock(mutex_);
    state_ = std::max(state_, state);
  }
  changed_.notify_all();
}

void RankLife::note_reason(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (state_ >= State::aborted) return;
    reason_ = reason;
    state_ = State::aborted;
  }
  changed_.notify_all();
}

// All ranks learn the reason before anything is released: a release on one rank shows as errors on others.
void RankLife::abort(const std::string& reason) noexcept {
  std::vector<std::shared_ptr<RankLife>> others;
  for (const std::weak_ptr<RankLife>& other : others_) {
    if (auto alive = other.lock()) others.push_back(std::move(alive));
  }
  note_reason(reason);
  for (const auto& other : others) other->note_reason(reason);
  release();
  for (const auto& other : others) other->release();
}

void RankLife::release() noexcept {
  std::lock_guard in_use(in_use_);
  std::vector<std::function<void()>> releases;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::retired) return;
    releases.swap(releases_);
  }
  for (const auto& release : releases) release();
}

void RankLife::on_abort(std::function<void()> release) {
  {
    std::lock_guard lock(mutex_);
    if (state_ < State::aborted) {
      releases_.push_back(std::move(release));
      return;
    }
  }
  release();
}

std::string RankLife::reason_of(const Failure& failure) const {
  return "rank " + std::to_string(rank_) + " failed: " + failure.what;
}

void RankLife::fail(const Failure& failure, const std::function<void()>& drain) noexcept {
  {
    std::unique_lock lock(mutex_);
    if (state_ == State::running) {
      failure_ = failure;
      state_ = State::failed;
      changed_.notify_all();
      changed_.wait_for(lock, patience_, [this] { return state_ >= State::aborted; });
    }
  }
  abort(reason_of(failure));  // unless the watchdog has; either way everything has been released when it returns
  try {
    drain();
  } catch (const std::exception&) {
    // The first failure is known already.
  }
  advance(State::drained);
}

RankLife::Failure RankLife::failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    return {e.what(), true};
  } catch (const std::exception& e) {
    return {error_text(e), false};
  } catch (...) {
    return {"an exception of no known class", false};
  }
}

void RankLife::end(std::exception_ptr error, const std::function<void()>& drain) {
  const Failure failure = failure_of(error);
  fail(failure, drain);
  // The reason that another thread found says more than this rank's error of communication.
  if (const std::string why = reason();
      failure.of_communication && !why.empty() && why != reason_of(failure) && why != failure.what) {
    throw CommError(why);
  }
  std::rethrow_exception(error);
}

void RankLife::retire() noexcept {
  std::lock_guard in_use(in_use_);
  {
    std::lock_guard lock(mutex_);
    releases_.clear();
  }
  advance(State::retired);
}

void RankLife::set_watched(std::chrono::milliseconds patience) {
  std::lock_guard lock(mutex_);
  patience_ = patience;
}

void RankLife::wait_for(State state, std::chrono::milliseconds time, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, stop, time, [&] { return state_ >= state; });
}

std::vector<std::shared_ptr<RankLife>> make_rank_lives(int ranks) {
  std::vector<std::shared_ptr<RankLife>> lives;
  for (int rank = 0; rank < ranks; ++rank) lives.push_back(std::make_shared<RankLife>(rank));
  for (const auto& life : lives) {
    std::copy_if(lives.begin(), lives.end(), std::back_inserter(life->others_),
                 [&](const auto& other) { return other != life; });
  }
  return lives;
}

void synchronize_aborted(StreamRef stream) noexcept {
  try {
    stream.synchronize();
  } catch (const std::exception&) {
    // The first failure is known already.
  }
}

}  // namespace plait::runtime
