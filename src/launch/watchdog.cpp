#include "launch/watchdog.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stop_token>
#include <thread>
#include <vector>

#include "comm/meeting.h"
#include "comm/p2p/facts.h"
#include "core/device.h"
#include "core/error.h"
#include "core/stoppable_wait.h"
#include "launch/process_state.h"
#include "launch/standstill.h"

namespace plait::launch {
namespace {

using Clock = std::chrono::steady_clock;
using comm::p2p::ProcessIdentity;
using runtime::RankLife;
using State = RankLife::State;
using std::chrono::milliseconds;

// Shares of the time limit: for standing still, for the others' answers, for the rank to end after the abort. The rest is for
// processes that have to be killed.
constexpr double standstill_share = 0.6;
constexpr double answer_share = 0.1;
constexpr double ending_share = 0.2;
constexpr milliseconds longest_answer{5'000};
constexpr milliseconds shortest_ending{3'000};
// Time for the process that started a rank to say how it ended, if it is seen to be gone.
constexpr milliseconds obituary_time{150};

milliseconds share_of(milliseconds time, double share) {
  return milliseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * share));
}

std::string seconds(Clock::duration time) { return fmt::format("{:.1f} s", std::chrono::duration<double>(time).count()); }

comm::Meeting meeting_of(comm::Rendezvous& store, int rank, int size) {
  return {store, "watchdog", rank, size, milliseconds(0)};  // nobody waits in it
}

// Only a rank's first word on a topic counts.
template <typename T>
void say_once(comm::Meeting& meeting, const char* topic, const T& word) noexcept {
  try {
    meeting.try_say(topic, word);
  } catch (const std::exception&) {
    return;  // the store is gone with the job
  }
}

struct Alarm {
  enum class Kind {
    standstill,  // nothing moves any more
    process,     // another rank's process is gone or stopped; the rest may still have moved, as in the next kind
    failure,     // of a call, or of a rank: usually the consequence of something else
  };
  std::string what;
  Kind kind = Kind::failure;
};

struct AlarmKindRule {
  Alarm::Kind read(const JsonField& field) const {
    return static_cast<Alarm::Kind>(field.whole(0, static_cast<int>(Alarm::Kind::failure)));
  }
  int write(Alarm::Kind kind) const { return static_cast<int>(kind); }
};

void declare(auto& field, Of<Alarm> auto& alarm) {
  field("what", alarm.what, record::lines(comm::Meeting::usual_bytes));
  field("kind", alarm.kind, AlarmKindRule());
}

void raise_alarm(comm::Meeting& meeting, const Alarm& alarm) noexcept {
  try {
    meeting.first("alarm", alarm);
  } catch (const std::exception&) {
    return;  // the store is gone with the job
  }
}

// The way a rank left.
struct Departure {
  bool failed = false;  // by its own failure; any other way is its normal end
  std::string words;
};

void to_json(comm::Json& json, const Departure& left) { json = {{"failed", left.failed}, {"words", left.words}}; }

void from_json(const comm::Json& json, Departure& left) {
  json.at("failed").get_to(left.failed);
  json.at("words").get_to(left.words);
}

// A rank's process, for observers that can see it.
struct Residence {
  ProcessIdentity process;
  std::string host;
};

void declare(auto& field, Of<Residence> auto& place) {
  field("machine", place.process.host);
  field("process", place.process.process, record::whole(0));
  field("start", place.process.start);
  field("namespace", place.process.pid_namespace);
  field("network", place.process.network_namespace);
  field("host", place.host);
}

Residence own_place() { return {comm::p2p::this_process(), host_name()}; }

}  // namespace

class Watchdog::Watch {
 public:
  explicit Watch(WatchdogSpec spec)
      : spec_(std::move(spec)),
        meeting_(meeting_of(*spec_.store, spec_.rank, spec_.size)),
        own_(own_place()),
        places_(static_cast<std::size_t>(spec_.size)) {
    meeting_.say("place", own_);
    spec_.life->set_watched(answer_time() + milliseconds(1'000));
    thread_ = std::jthread([this](std::stop_token stop) { watch(stop); });
  }

  ~Watch() { spec_.life->set_watched(milliseconds(0)); }

 private:
  milliseconds answer_time() const { return std::min(share_of(spec_.timeout, answer_share), longest_answer); }

  // Runs until the rank has retired, or something is wrong; then ensures that the rank ends.
  void watch(std::stop_token stop) {
    RankLife& life = *spec_.life;
    try {
      if (const std::optional<Alarm> alarm = wait_for_alarm(stop)) {
        if (const std::optional<std::string> reason = answer(*alarm, stop)) abort(*reason);
      }
    } catch (const comm::RendezvousLostError& error) {
      abort(fmt::format("the run cannot go on: {}{}", error.what(), without_rendezvous()));
    } catch (const std::exception& error) {
      abort(fmt::format("rank {}'s watchdog failed: {}", spec_.rank, error.what()));
    }
    if (life.is_aborted()) {
      wait_for_stop(stop, std::max(share_of(spec_.timeout, ending_share), shortest_ending));
      if (!stop.stop_requested()) spec_.give_up(life.reason());
    }
    passed_on_failure();  // the first word is then the failure
    say_once(meeting_, "left",
             Departure{false, life.is_aborted() ? "was ended with the run" : "has come to the end of its part of the run"});
  }

  void abort(const std::string& reason) {
    spec_.life->abort(reason);
    spec_.store->abort(reason);  // for a rank that waits there, not on its device
  }

  // nullopt if the rank ends without an alarm.
  std::optional<Alarm> wait_for_alarm(std::stop_token stop) {
    const milliseconds period = std::clamp(share_of(spec_.timeout, 1.0 / 100), milliseconds(20), milliseconds(500));
    const milliseconds patience = share_of(spec_.timeout, standstill_share);
    std::uint64_t done = 0;
    Clock::duration still{0};
    Clock::time_point last = Clock::now();
    for (;;) {
      spec_.life->wait_for(State::failed, period, stop);
      if (stop.stop_requested() || passed_on_failure() || spec_.life->state() >= State::aborted) return std::nullopt;
      if (auto alarm = meeting_.first<Alarm>("alarm")) return alarm;
      if (const auto failure = spec_.life->failure()) return raise({failure->what, Alarm::Kind::failure});
      const auto reading = read();
      if (!reading) continue;  // retired
      const auto now = Clock::now();
      // A process that was stopped itself, or got no processor, has not seen the others stand still all that time.
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

  // An error of the rank's own needs no search for its cause: the others learn it, and the rank may go on to its end.
  bool passed_on_failure() noexcept {
    const std::optional<RankLife::Failure> failure = spec_.life->failure();
    if (!failure || failure->of_communication) return false;
    say_once(meeting_, "left", Departure{true, fmt::format("failed: {}", failure->what)});
    const std::string reason = spec_.life->reason_of(*failure);
    raise_alarm(meeting_, {reason, Alarm::Kind::failure});
    spec_.life->abort(reason);
    return true;
  }

  // Another rank's process that is gone, or that has been stopped for `patience`: also detected while this rank waits for it
  // without any device, for example for a checkpoint.
  std::optional<std::string> lost_process(Clock::duration passed, Clock::duration patience) {
    for (int rank = 0; rank < spec_.size; ++rank) {
      const Residence* place = place_of(rank);
      if (!place || !can_look_at(*place) || place->process.is_same_process(own_.process)) continue;
      const ProcessState state = process_state(place->process.process, place->process.start);
      if (state == ProcessState::ended && (has_failed(rank) || !meeting_.heard<Departure>("left", rank))) {
        return fmt::format("rank {} found the process of rank {} gone", spec_.rank, rank);
      }
      Clock::duration& stopped = stopped_[rank];
      stopped = state == ProcessState::stopped ? stopped + passed : Clock::duration{0};
      if (stopped >= patience)
        return fmt::format("rank {} found the process of rank {} stopped for {}", spec_.rank, rank, seconds(stopped));
    }
    return std::nullopt;
  }

  // Raises the alarm and returns the one in force: this one, unless another came first.
  Alarm raise(const Alarm& alarm) { return meeting_.first("alarm", alarm); }

  // Says how this rank stands, hears the others, and puts the situation into words. nullopt if the rank has retired.
  std::optional<std::string> answer(const Alarm& alarm, std::stop_token stop) {
    std::vector<std::optional<RankStanding>> answers(static_cast<std::size_t>(spec_.size));
    const auto reading = read();
    if (!reading) return std::nullopt;
    const RankStanding own = rank_standing(spec_.rank, spec_.layout, spec_.ends, *reading);
    say_once(meeting_, "answer", own);
    const auto begin = Clock::now();
    const auto go_on = [&] {
      return !stop.stop_requested() && spec_.life->state() < State::aborted && !passed_on_failure() &&
             Clock::now() - begin < answer_time();
    };
    for (auto asked = begin; !all_said(answers, Clock::now() - begin, go_on) && go_on(); asked = Clock::now()) {
      // The keeper of a large job's words gets as much time for other questions as for these.
      std::this_thread::sleep_for(std::max<Clock::duration>(milliseconds(10), Clock::now() - asked));
    }
    for (int rank = 0; rank < spec_.size; ++rank) {
      if (has_failed(rank)) answers[static_cast<std::size_t>(rank)].reset();  // its position then means nothing
    }
    const Explanation explanation = explain_standstill(answers, [this](int rank) { return silence_of(rank); });
    return tell(alarm, explanation, answers);
  }

  // True if there is nothing more to wait for; asks no more once `go_on` is false.
  bool all_said(std::vector<std::optional<RankStanding>>& answers, Clock::duration waited, const std::function<bool()>& go_on) {
    bool complete = true;
    for (int rank = 0; rank < spec_.size && go_on(); ++rank) {
      auto& answer = answers[static_cast<std::size_t>(rank)];
      if (answer) continue;
      answer = meeting_.heard<RankStanding>("answer", rank);
      if (answer && !is_among(*answer, spec_.size)) meeting_.refuse("answer", rank, "it names ranks that there are not");
      if (answer) continue;
      const bool told = meeting_.heard<std::string>("death", rank) || meeting_.heard<Departure>("left", rank);
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
    // Threads share a process, which prints their exceptions.
    const bool here =
        (*teller)->rank == spec_.rank || ((*teller)->process == own_.process.process && (*teller)->host == own_.host);
    if (!here) return fmt::format("{} (rank {} tells more)", gist, (*teller)->rank);
    // A failed call's words about its peers are not worth printing if the reason is known.
    return gist + explanation.details +
           (alarm.kind == Alarm::Kind::failure ? "" : fmt::format("\n  first noticed: {}", alarm.what));
  }

  Silence silence_of(int rank) {
    if (const auto words = meeting_.heard<std::string>("death", rank)) return {Silence::Kind::dead, *words};
    if (const auto left = meeting_.heard<Departure>("left", rank)) {
      return {left->failed ? Silence::Kind::failed : Silence::Kind::done, left->words};
    }
    const Residence* place = place_of(rank);
    if (!place) return {Silence::Kind::unknown, "does not answer: it has not come so far as to take part in the run"};
    return silence_at(*place);
  }

  // The state of a silent rank that lives there, as far as this one can see by itself.
  Silence silence_at(const Residence& place) const {
    const std::int64_t process = place.process.process;
    if (!can_look_at(place)) {
      return {Silence::Kind::unknown,
              fmt::format("does not answer: its process {} on {} is stopped, dead, or cut off", process, place.host)};
    }
    const ProcessState state = process_state(process, place.process.start);
    const bool dead = state == ProcessState::ended || state == ProcessState::stopped;
    return {dead ? Silence::Kind::dead : Silence::Kind::unknown,
            fmt::format("does not answer: its process {} {}{}", process, to_string(state),
                        dead || own_.process.shares_network_with(place.process)
                            ? ""
                            : ", or the network between it and this rank is cut or too slow")};
  }

  // This rank's own explanation, when rank 0, and with it every other's word, is out of reach.
  std::string without_rendezvous() {
    const auto reading = read();
    if (!reading) return "";
    const auto silence = [this](int rank) {
      const auto& place = places_[static_cast<std::size_t>(rank)];
      if (place) return silence_at(*place);
      return Silence{Silence::Kind::unknown,
                     "does not answer: its process has ended or is stopped, or the network between it and this rank is cut or "
                     "too slow"};
    };
    std::vector<std::optional<RankStanding>> answers(static_cast<std::size_t>(spec_.size));
    answers[static_cast<std::size_t>(spec_.rank)] = rank_standing(spec_.rank, spec_.layout, spec_.ends, *reading);
    return fmt::format("\n  rank 0 {}{}", silence(0).words, explain_standstill(answers, silence).details);
  }

  bool has_failed(int rank) const {
    const auto left = meeting_.heard<Departure>("left", rank);
    return left && left->failed;
  }

  const Residence* place_of(int rank) {
    auto& place = places_[static_cast<std::size_t>(rank)];
    if (!place) place = meeting_.heard<Residence>("place", rank);
    return place ? &*place : nullptr;
  }

  bool can_look_at(const Residence& place) const {
    const ProcessIdentity& other = place.process;
    return other.host == own_.process.host && other.pid_namespace == own_.process.pid_namespace && !other.pid_namespace.empty();
  }

  std::optional<runtime::ProgressBoard::Reading> read() { return spec_.life->while_in_use(spec_.read); }

  const WatchdogSpec spec_;
  comm::Meeting meeting_;
  const Residence own_;
  std::vector<std::optional<Residence>> places_;  // by rank, as far as known
  std::map<int, Clock::duration> stopped_;        // time for which ranks' processes have been stopped
  std::jthread thread_;                           // last: starts when everything above exists
};

Watchdog::Watchdog(WatchdogSpec spec) : watch_(std::make_unique<Watch>(std::move(spec))) {}
Watchdog::~Watchdog() = default;
void report_death(comm::Rendezvous& store, int rank, const std::string& words) noexcept {
  comm::Meeting for_it = meeting_of(store, rank, rank + 1);
  say_once(for_it, "death", words);
  raise_alarm(for_it, {fmt::format("rank {} {}", rank, words), Alarm::Kind::failure});
}

}  // namespace plait::launch
