// The life of one rank, and the only way in which it ends before its time.
//
//   running ──> failed ──> aborted ──> drained ──> retired
//
//   running   its thread enqueues work and waits for results
//   failed    its thread caught an error. Nothing has been released yet: its watchdog, if it has one, first tells the other
//             ranks and finds the cause of an error of communication
//   aborted   the reason is final, and everything that waited for another rank goes on. All results are worthless from here on
//   drained   its streams are empty, so memory that they used may be freed
//   retired   no other thread touches what the rank owns any more
//
// A rank moves only from left to right, and may skip states: one that comes to its end goes from `running` to `retired`, one
// that another rank ends goes from `running` to `aborted`. The rank's own thread takes the steps to failed, drained and
// retired; any thread may take the step to aborted. launch() makes the lives of the ranks that are threads of this process
// together and ends each; the interpreter (which alone knows the streams) and the watchdog (which alone knows other processes)
// act on them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/stream.h"

namespace plait::runtime {

class RankLife {
 public:
  enum class State { running, failed, aborted, drained, retired };

  // The error that its thread caught.
  struct Failure {
    std::string what;
    bool of_communication = false;  // a CommError, mostly a consequence of an error on another rank
  };
  static Failure failure_of(const std::exception_ptr& error);
  // The text about it for the other ranks: "rank 1 failed: out of memory".
  std::string reason_of(const Failure& failure) const;

  explicit RankLife(int rank = 0) : rank_(rank) {}
  RankLife(const RankLife&) = delete;
  RankLife& operator=(const RankLife&) = delete;

  // --- any thread ---

  State state() const;
  bool is_aborted() const { return !reason().empty(); }
  // The reason why it was aborted; the first one stays. Empty if it was not.
  std::string reason() const;
  // Aborts this rank and all that are threads of this process, since freeing a GPU's memory can wait for streams of any of
  // them. Returns when everything they waited for has been released. `reason` is not empty.
  void abort(const std::string& reason) noexcept;

  // --- the rank's thread ---

  // Returns the result of `work`. If it throws, the rank goes to `failed`, `aborted` and, once `drain` has emptied the streams,
  // `drained`. Then the exception goes on, or a CommError with the reason for the abort if that is another. `drain` may throw
  // what the streams throw; that is ignored. Calls may be nested; each drains its own streams.
  template <typename Work, typename Drain>
  std::invoke_result_t<Work> run(Work&& work, Drain&& drain) {
    try {
      return std::forward<Work>(work)();
    } catch (...) {
      end(std::current_exception(), std::forward<Drain>(drain));
    }
  }
  // `release` is called once, on any thread, when the rank is aborted; at once if it has been. It makes something that waits
  // for other ranks go on, must not throw, and must own what it touches (a weak_ptr, say), because it stays until the rank
  // retires.
  void on_abort(std::function<void()> release);
  // CommError with the reason if the rank has been aborted.
  void check() const;
  // The same steps for an error that did not pass through run(), without an exception. Returns in state `drained`.
  void fail(const Failure& failure, const std::function<void()>& drain) noexcept;
  // Waits for calls of other threads that are under way.
  void retire() noexcept;

  // --- its watchdog ---

  // From now on a failed rank waits up to `patience` for the watchdog to abort it.
  void set_watched(std::chrono::milliseconds patience);
  // Waits until the rank has come to `state` or `time` has passed.
  void wait_for(State state, std::chrono::milliseconds time, std::stop_token stop);
  std::optional<Failure> failure() const;
  // Returns the result of `look`, which may touch what the rank owns; nothing if the rank has retired.
  template <typename Look>
  std::optional<std::invoke_result_t<Look>> while_in_use(Look&& look) {
    std::lock_guard lock(in_use_);
    if (state() == State::retired) return std::nullopt;
    return std::forward<Look>(look)();
  }

 private:
  friend std::vector<std::shared_ptr<RankLife>> make_rank_lives(int ranks);

  [[noreturn]] void end(std::exception_ptr error, const std::function<void()>& drain);
  void advance(State state);
  void note_reason(const std::string& reason);
  void release() noexcept;

  const int rank_;
  std::vector<std::weak_ptr<RankLife>> others_;  // the other ranks of this process
  mutable std::mutex mutex_;                     // guards all members below it
  std::condition_variable_any changed_;
  State state_ = State::running;
  std::optional<Failure> failure_;
  std::string reason_;
  std::vector<std::function<void()>> releases_;
  std::chrono::milliseconds patience_{0};
  std::mutex in_use_;  // held while another thread touches what the rank owns; taken before mutex_
};

// Makes the lives of ranks that are threads of one process: aborting one aborts all.
std::vector<std::shared_ptr<RankLife>> make_rank_lives(int ranks);

// Blocks until the stream is empty and ignores its failures. Call it before destroying the links and communicators that the
// stream uses, and after aborting them: the reason for the abort is known already.
void synchronize_aborted(StreamRef stream) noexcept;

}  // namespace plait::runtime
