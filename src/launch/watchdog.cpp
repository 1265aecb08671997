#include "launch/watchdog.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>
#include <vector>

#include "comm/p2p/process_identity.h"
#include "core/error.h"
#include "core/host_name.h"
#include "launch/process_state.h"
#include "launch/standstill.h"

namespace plait::launch {
namespace {

using Clock = std::chrono::steady_clock;
using comm::p2p::ProcessIdentity;
using std::chrono::milliseconds;

// Shares of the time limit: for standing still, for the others' answers, for the rank to end after the abort. The rest is for
// processes that have to be killed.
constexpr double standstill_share = 0.6;
constexpr double answer_share = 0.1;
constexpr double ending_share = 0.2;
constexpr milliseconds longest_answer{5'000};
constexpr milliseconds shortest_ending{3'000};
// For the one who started a process to say how it ended, where it is seen to be gone.
constexpr milliseconds obituary_time{150};
// For the watchdogs of one process to abort their ranks; they look every half second at most.
constexpr milliseconds abort_time{2'000};

const std::string alarm_key = "watchdog/alarm";
// How a rank left that failed by itself; any other way is its end.
constexpr std::string_view failed_word = "failed";
std::string key_of(const std::string& what, int rank) { return "watchdog/" + what + "/" + std::to_string(rank); }

milliseconds share_of(milliseconds time, double share) {
  return milliseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * share));
}

std::string seconds(Clock::duration time) { return fmt::format("{:.1f} s", std::chrono::duration<double>(time).count()); }

// Written once; the first is the one.
void set_if_new(comm::Rendezvous& store, const std::string& key, const std::string& value) noexcept {
  try {
    store.set(key, value);
  } catch (const std::exception&) {
    return;  // there already, or the store is gone with the job
  }
}

struct Alarm {
  enum class Kind {
    standstill,  // nothing moved any more
    process,     // another rank's is gone or stopped; the rest may still have moved, as it may below
    failure,     // of a call, or of a rank: mostly the consequence of something else
  };
  std::string what;
  Kind kind = Kind::failure;
};

std::string to_text(const Alarm& alarm) {
  return nlohmann::json{{"what", alarm.what}, {"kind", static_cast<int>(alarm.kind)}}.dump();
}

std::optional<Alarm> alarm_from(const std::optional<std::string>& text) {
  const nlohmann::json json = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  if (!json.is_object()) return std::nullopt;
  return Alarm{json.value("what", ""), static_cast<Alarm::Kind>(json.value("kind", static_cast<int>(Alarm::Kind::failure)))};
}

// A rank's process, for those who can look at it.
struct Residence {
  ProcessIdentity process;
  std::string host;
};

std::string to_text(const Residence& place) {
  return nlohmann::json{{"machine", place.process.host},
                        {"process", place.process.process},
                        {"start", place.process.start},
                        {"namespace", place.process.pid_namespace},
                        {"host", place.host}}
      .dump();
}

std::optional<Residence> place_from(const std::optional<std::string>& text) {
  const nlohmann::json json = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  if (!json.is_object()) return std::nullopt;
  Residence place;
  place.process.host = json.value("machine", "");
  place.process.process = json.value("process", std::int64_t{0});
  place.process.start = json.value("start", "");
  place.process.pid_namespace = json.value("namespace", "");
  place.host = json.value("host", "");
  return place;
}

Residence own_place() { return {comm::p2p::this_process(), host_name()}; }

}  // namespace

class Watchdog::Watch {
 public:
  explicit Watch(WatchdogSpec spec) : spec_(std::move(spec)), own_(own_place()), places_(static_cast<std::size_t>(spec_.size)) {
    spec_.store->set(key_of("place", spec_.rank), to_text(own_));
    thread_ = std::jthread([this](std::stop_token stop) { watch(stop); });
  }

  void inquire(const std::string& what) {
    std::unique_lock lock(mutex_);
    inquiry_ = what;
    changed_.notify_all();
    changed_.wait_for(lock, answer_time() + milliseconds(1'000), [this] { return answered_; });
  }

  void failed(const std::string& what) noexcept {
    set_if_new(*spec_.store, key_of("left", spec_.rank), fmt::format("{}: {}", failed_word, what));
    set_if_new(*spec_.store, alarm_key,
               to_text(Alarm{fmt::format("rank {} failed: {}", spec_.rank, what), Alarm::Kind::failure}));
  }

  void await_abort_of_threads() {
    const auto deadline = Clock::now() + abort_time;
    for (int rank = 0; rank < spec_.size; ++rank) {
      const auto place = place_from(spec_.store->find(key_of("place", rank)));
      if (rank == spec_.rank || !place || !place->process.is_same_process(own_.process)) continue;
      const auto released = [&] {
        return spec_.store->find(key_of("aborted", rank)) || spec_.store->find(key_of("left", rank));
      };
      while (!released() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
    }
  }

  void retire(const std::string& how) noexcept {
    set_if_new(*spec_.store, key_of("left", spec_.rank), how);
    std::lock_guard lock(in_use_);
    retired_ = true;
  }

 private:
  milliseconds answer_time() const { return std::min(share_of(spec_.timeout, answer_share), longest_answer); }

  // Until something is amiss; then sees to it that the rank ends.
  void watch(std::stop_token stop) {
    const milliseconds period = std::clamp(share_of(spec_.timeout, 1.0 / 100), milliseconds(20), milliseconds(500));
    std::string reason;
    try {
      const std::optional<Alarm> alarm = wait_for_alarm(stop, period);
      if (!alarm) return;
      reason = answer(*alarm, stop);
    } catch (const std::exception& error) {
      reason = fmt::format("rank {}'s watchdog failed: {}", spec_.rank, error.what());
    }
    abort(reason);
    wait(stop, std::max(share_of(spec_.timeout, ending_share), shortest_ending), [] { return false; });
    if (!stop.stop_requested()) spec_.give_up(reason);
  }

  template <typename Condition>
  void wait(std::stop_token stop, milliseconds time, Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, time, condition);
  }

  std::optional<Alarm> wait_for_alarm(std::stop_token stop, milliseconds period) {
    const milliseconds patience = share_of(spec_.timeout, standstill_share);
    std::uint64_t done = 0;
    Clock::duration still{0};
    Clock::time_point last = Clock::now();
    for (;;) {
      wait(stop, period, [this] { return inquiry_.has_value(); });
      if (stop.stop_requested()) return std::nullopt;
      if (auto alarm = alarm_from(spec_.store->find(alarm_key))) return alarm;
      if (const auto what = inquiry()) return raise({*what, Alarm::Kind::failure});
      const auto reading = read();
      if (!reading) continue;  // retired
      const auto now = Clock::now();
      // Who was stopped himself, or got no processor, has not seen the others stand still for all that time.
      const auto passed = std::min<Clock::duration>(now - last, 4 * period);
      last = now;
      still = reading->idle() || reading->done != done ? Clock::duration{0} : still + passed;
      done = reading->done;
      if (still >= patience) {
        return raise({fmt::format("rank {} did not get any further for {}; comm.timeout_s is {}", spec_.rank, seconds(still),
                                  seconds(spec_.timeout)),
                      Alarm::Kind::standstill});
      }
      if (const auto lost = lost_process(passed, patience)) return raise({*lost, Alarm::Kind::process});
    }
  }

  // Another rank's process that is gone, or that has been stopped for `patience`: also seen while this rank waits for it where
  // no device is involved, say for a checkpoint.
  std::optional<std::string> lost_process(Clock::duration passed, Clock::duration patience) {
    for (int rank = 0; rank < spec_.size; ++rank) {
      const Residence* place = place_of(rank);
      if (!place || !can_look_at(*place) || place->process.is_same_process(own_.process)) continue;
      const ProcessState state = process_state(place->process.process, place->process.start);
      if (state == ProcessState::ended && (has_failed(rank) || !spec_.store->find(key_of("left", rank)))) {
        return fmt::format("rank {} found the process of rank {} gone", spec_.rank, rank);
      }
      Clock::duration& stopped = stopped_[rank];
      stopped = state == ProcessState::stopped ? stopped + passed : Clock::duration{0};
      if (stopped >= patience)
        return fmt::format("rank {} found the process of rank {} stopped for {}", spec_.rank, rank, seconds(stopped));
    }
    return std::nullopt;
  }

  // The alarm that is up then: this one, unless another came before.
  Alarm raise(const Alarm& alarm) {
    set_if_new(*spec_.store, alarm_key, to_text(alarm));
    return alarm_from(spec_.store->find(alarm_key)).value_or(alarm);
  }

  // Says how this rank stands, hears the others, and finds words for it.
  std::string answer(const Alarm& alarm, std::stop_token stop) {
    std::vector<std::optional<RankStanding>> answers(static_cast<std::size_t>(spec_.size));
    const auto reading = read();
    if (!reading) return alarm.what;  // the rank is on its way out
    const RankStanding own = rank_standing(spec_.rank, spec_.layout, spec_.last_stage_rank, *reading);
    set_if_new(*spec_.store, key_of("answer", spec_.rank), to_text(own));
    const auto begin = Clock::now();
    const auto go_on = [&] { return !stop.stop_requested() && Clock::now() - begin < answer_time(); };
    while (!all_said(answers, Clock::now() - begin) && go_on()) std::this_thread::sleep_for(milliseconds(10));
    for (int rank = 0; rank < spec_.size; ++rank) {
      if (has_failed(rank)) answers[static_cast<std::size_t>(rank)].reset();  // where it stood then says nothing
    }
    const Explanation explanation = explain_standstill(answers, [this](int rank) { return silence_of(rank); });
    return tell(alarm, explanation, answers);
  }

  // Whether there is nothing more to wait for.
  bool all_said(std::vector<std::optional<RankStanding>>& answers, Clock::duration waited) {
    bool complete = true;
    for (int rank = 0; rank < spec_.size; ++rank) {
      auto& answer = answers[static_cast<std::size_t>(rank)];
      if (answer) continue;
      if (const auto text = spec_.store->find(key_of("answer", rank))) answer = standing_from(*text);
      if (answer) continue;
      const bool told = spec_.store->find(key_of("death", rank)) || spec_.store->find(key_of("left", rank));
      if (told) continue;
      complete = complete && silence_of(rank).kind == Silence::Kind::dead && waited >= obituary_time;
    }
    return complete;
  }

  std::string tell(const Alarm& alarm, const Explanation& explanation,
                   const std::vector<std::optional<RankStanding>>& answers) const {
    const bool explained = alarm.kind == Alarm::Kind::standstill || explanation.certain;
    const std::string gist = "the run cannot go on: " + (explained ? explanation.culprit : alarm.what);
    const auto teller = std::find_if(answers.begin(), answers.end(), [](const auto& answer) { return answer.has_value(); });
    if (teller == answers.end() || explanation.details.empty()) return gist;
    // Threads are of one process, which prints what one of them throws.
    const bool here =
        (*teller)->rank == spec_.rank || ((*teller)->process == own_.process.process && (*teller)->host == own_.host);
    if (!here) return fmt::format("{} (rank {} tells more)", gist, (*teller)->rank);
    // What a failed call said of its peers is not worth telling where the reason is known.
    return gist + explanation.details +
           (alarm.kind == Alarm::Kind::failure ? "" : fmt::format("\n  first noticed: {}", alarm.what));
  }

  Silence silence_of(int rank) {
    if (const auto words = spec_.store->find(key_of("death", rank))) return {Silence::Kind::dead, *words};
    if (const auto left = spec_.store->find(key_of("left", rank))) {
      return {left->starts_with(failed_word) ? Silence::Kind::failed : Silence::Kind::done, *left};
    }
    const Residence* place = place_of(rank);
    if (!place) return {Silence::Kind::unknown, "does not answer: it has not come so far as to take part in the run"};
    const std::int64_t process = place->process.process;
    if (!can_look_at(*place)) {
      return {Silence::Kind::unknown,
              fmt::format("does not answer: its process {} on {} is stopped, dead, or cut off", process, place->host)};
    }
    const ProcessState state = process_state(process, place->process.start);
    const bool dead = state == ProcessState::ended || state == ProcessState::stopped;
    return {dead ? Silence::Kind::dead : Silence::Kind::unknown,
            fmt::format("does not answer: its process {} {}", process, to_string(state))};
  }

  bool has_failed(int rank) const {
    const auto left = spec_.store->find(key_of("left", rank));
    return left && left->starts_with(failed_word);
  }

  const Residence* place_of(int rank) {
    auto& place = places_[static_cast<std::size_t>(rank)];
    if (!place) place = place_from(spec_.store->find(key_of("place", rank)));
    return place ? &*place : nullptr;
  }

  bool can_look_at(const Residence& place) const {
    const ProcessIdentity& other = place.process;
    return other.host == own_.process.host && other.pid_namespace == own_.process.pid_namespace && !other.pid_namespace.empty();
  }

  std::optional<std::string> inquiry() {
    std::lock_guard lock(mutex_);
    return inquiry_;
  }

  std::optional<runtime::ProgressBoard::Reading> read() {
    std::lock_guard lock(in_use_);
    if (retired_) return std::nullopt;
    return spec_.read();
  }

  void abort(const std::string& reason) {
    {
      std::lock_guard lock(in_use_);
      if (!retired_) spec_.abort(reason);
    }
    set_if_new(*spec_.store, key_of("aborted", spec_.rank), "");
    std::lock_guard lock(mutex_);
    answered_ = true;
    changed_.notify_all();
  }

  const WatchdogSpec spec_;
  const Residence own_;
  std::vector<std::optional<Residence>> places_;  // by rank, as far as known
  std::map<int, Clock::duration> stopped_;        // for how long ranks' processes have been
  std::mutex in_use_;                             // held while the rank is looked at or aborted
  bool retired_ = false;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<std::string> inquiry_;
  bool answered_ = false;
  std::jthread thread_;  // last: starts when everything above exists
};

Watchdog::Watchdog(WatchdogSpec spec) : watch_(std::make_unique<Watch>(std::move(spec))) {}
Watchdog::~Watchdog() = default;
void Watchdog::inquire(const std::string& what) { watch_->inquire(what); }
void Watchdog::failed(const std::string& what) noexcept { watch_->failed(what); }
void Watchdog::await_abort_of_threads() { watch_->await_abort_of_threads(); }
void Watchdog::retire(const std::string& how) noexcept { watch_->retire(how); }

void report_death(comm::Rendezvous& store, int rank, const std::string& words) noexcept {
  set_if_new(store, key_of("death", rank), words);
  set_if_new(store, alarm_key, to_text(Alarm{fmt::format("rank {} {}", rank, words), Alarm::Kind::failure}));
}

}  // namespace plait::launch
