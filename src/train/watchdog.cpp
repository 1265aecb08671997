#include "train/watchdog.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "parallel/program_set.h"

namespace plait::train {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using std::chrono::milliseconds;

// Shares of the time limit: for standing still, for the others' answers. The rest is for streams to drain and processes to end.
constexpr double standstill_share = 0.6;
constexpr double answer_share = 0.1;
constexpr milliseconds longest_answer{5'000};

const std::string alarm_key = "watchdog/alarm";

milliseconds share_of(milliseconds time, double share) {
  return milliseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * share));
}

std::string host_name() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return host;
}

std::string answer_key(const std::string& name, int rank) { return "watchdog/" + name + "/" + std::to_string(rank); }
std::string place_key(const std::string& name, int rank) { return "watchdog/" + name + "/place/" + std::to_string(rank); }

std::string to_text(const RankStanding& standing) {
  Json streams = Json::array();
  for (const RankStanding::Stream& s : standing.streams) {
    streams.push_back({{"stream", s.stream}, {"instruction", s.instruction}, {"behind", s.behind}, {"peers", s.peers}});
  }
  return Json{{"rank", standing.rank}, {"process", standing.process}, {"host", standing.host}, {"streams", streams}}.dump();
}

std::optional<RankStanding> standing_from(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  try {
    const Json json = Json::parse(*text);
    RankStanding standing{json.at("rank").get<int>(), json.at("process").get<std::int64_t>(), json.at("host").get<std::string>(), {}};
    for (const Json& s : json.at("streams")) {
      standing.streams.push_back({s.at("stream").get<std::string>(), s.at("instruction").get<std::string>(),
                                  s.at("behind").get<std::vector<std::string>>(), s.at("peers").get<std::vector<int>>()});
    }
    return standing;
  } catch (const Json::exception&) {
    return std::nullopt;  // half written, or not a watchdog's
  }
}

ProcessState state_of(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(')');  // the name before it may hold anything
  if (end == std::string::npos || end + 2 >= text.size()) return {"is gone"};
  switch (text[end + 2]) {
    case 'T':
    case 't': return {"is stopped (SIGSTOP, or a debugger)"};
    case 'Z':
    case 'X': return {"has ended"};
    case 'D': return {"waits in the kernel (state D)"};
    default: return {fmt::format("is alive (state {}) but its watchdog says nothing", text[end + 2]), true};
  }
}

// A rank waits for others where a stream of it has nothing of its own in its way and needs peers.
std::set<int> awaited_by(const RankStanding& standing) {
  std::set<int> peers;
  for (const RankStanding::Stream& s : standing.streams) peers.insert(s.peers.begin(), s.peers.end());
  return peers;
}

std::string sentence(const RankStanding& standing) {
  if (standing.streams.empty()) return fmt::format("rank {} has nothing to do: its thread has not begun another step", standing.rank);
  std::vector<std::string> parts;
  for (const RankStanding::Stream& s : standing.streams) {
    if (!s.behind.empty()) {
      parts.push_back(fmt::format("stream `{}` has `{}` before it, which comes after `{}`", s.stream, s.instruction, fmt::join(s.behind, "` and `")));
    } else if (!s.peers.empty()) {
      parts.push_back(fmt::format("stream `{}` waits in `{}` for rank{} {}", s.stream, s.instruction, s.peers.size() > 1 ? "s" : "", fmt::join(s.peers, ", ")));
    } else {
      parts.push_back(fmt::format("stream `{}` is busy with `{}`", s.stream, s.instruction));
    }
  }
  return fmt::format("rank {}: {}", standing.rank, fmt::join(parts, "; "));
}

}  // namespace

std::string explain_standstill(int first, const std::vector<std::optional<RankStanding>>& answers,
                               const std::function<std::string(int rank)>& silent) {
  // Breadth first, so that what is nearest to the rank that asks is told first.
  std::vector<int> order = {first}, roots;
  std::string text;
  for (std::size_t n = 0; n < order.size(); ++n) {
    const int rank = order[n];
    const auto& answer = answers[static_cast<std::size_t>(rank)];
    if (!answer) {
      text += fmt::format("\n  rank {} does not answer: {}", rank, silent(rank));
      roots.push_back(rank);
      continue;
    }
    text += "\n  " + sentence(*answer);
    const std::set<int> awaited = awaited_by(*answer);
    if (awaited.empty()) roots.push_back(rank);
    for (const int peer : awaited) {
      if (std::find(order.begin(), order.end(), peer) == order.end()) order.push_back(peer);
    }
  }
  if (roots.empty()) return text + "\n  they wait for each other in a circle";
  return text + fmt::format("\n  so it is rank{} {} that the others wait for", roots.size() > 1 ? "s" : "", fmt::join(roots, ", "));
}

Watchdog::Watchdog(WatchdogSpec spec) : spec_(std::move(spec)) {
  spec_.store->set(place_key(spec_.name, spec_.rank), fmt::format("{} {}", ::getpid(), host_name()));
  thread_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

Watchdog::~Watchdog() = default;

RankStanding Watchdog::standing() const {
  RankStanding standing{spec_.rank, ::getpid(), host_name(), {}};
  const parallel::ProgressBoard::Reading reading = spec_.read();
  for (const parallel::Standstill& still : parallel::standstills(reading)) {
    const parallel::Instruction& instruction = reading.program->at(still.instruction);
    RankStanding::Stream stream{to_string(still.stream), to_string(instruction), {}, {}};
    for (const int awaited : still.waits_for) stream.behind.push_back(to_string(reading.program->at(awaited)));
    if (still.is_free()) {
      if (still.stream.peer >= 0) {
        stream.peers.push_back(spec_.layout.on_pipeline(spec_.rank, still.stream.peer));
      } else if (const auto group = parallel::collective_group(instruction)) {
        for (const int member : spec_.layout.members(*group, spec_.rank, spec_.last_stage_rank)) {
          if (member != spec_.rank) stream.peers.push_back(member);
        }
      }
    }
    standing.streams.push_back(std::move(stream));
  }
  return standing;
}

void Watchdog::watch(std::stop_token stop) {
  const milliseconds patience = share_of(spec_.timeout, standstill_share);
  const milliseconds period = std::clamp(share_of(spec_.timeout, 1.0 / 100), milliseconds(20), milliseconds(500));
  std::mutex mutex;
  std::condition_variable_any tick;
  std::uint64_t done = 0;
  auto moved = Clock::now();
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex);
      tick.wait_for(lock, stop, period, [] { return false; });
    }
    if (stop.stop_requested()) return;
    try {
      if (const auto alarm = spec_.store->find(alarm_key)) return answer_alarm(*alarm);
      const parallel::ProgressBoard::Reading reading = spec_.read();
      const auto now = Clock::now();
      if (reading.idle() || reading.done != done) moved = now;
      done = reading.done;
      if (now - moved < patience) continue;
      raise_alarm(*spec_.store, fmt::format("rank {} has not moved for {:.1f} s (comm.timeout_s is {:.1f})", spec_.rank,
                                            std::chrono::duration<double>(now - moved).count(), static_cast<double>(spec_.timeout.count()) / 1e3));
    } catch (const std::exception& error) {
      spec_.abort(fmt::format("rank {}'s watchdog failed: {}", spec_.rank, error.what()));
      return;
    }
  }
}

void Watchdog::answer_alarm(const std::string& alarm) {
  std::vector<std::optional<RankStanding>> answers(static_cast<std::size_t>(spec_.size));
  answers[static_cast<std::size_t>(spec_.rank)] = standing();
  spec_.store->set(answer_key(spec_.name, spec_.rank), to_text(*answers[static_cast<std::size_t>(spec_.rank)]));
  const auto deadline = Clock::now() + std::min(share_of(spec_.timeout, answer_share), longest_answer);
  for (;;) {
    bool complete = true;
    for (int rank = 0; rank < spec_.size; ++rank) {
      auto& answer = answers[static_cast<std::size_t>(rank)];
      if (!answer) answer = standing_from(spec_.store->find(answer_key(spec_.name, rank)));
      complete = complete && (answer || !state_of_rank(rank).may_answer);
    }
    if (complete || Clock::now() >= deadline) break;
    std::this_thread::sleep_for(milliseconds(20));
  }
  spec_.abort(alarm + explain_standstill(spec_.rank, answers, [this](int rank) { return state_of_rank(rank).words; }));
}

ProcessState Watchdog::state_of_rank(int rank) const {
  const auto place = spec_.store->find(place_key(spec_.name, rank));
  if (!place) return {"it has not come so far as to have a watchdog", true};
  const std::size_t space = place->find(' ');
  const std::string process = place->substr(0, space), host = space == std::string::npos ? "" : place->substr(space + 1);
  if (host != host_name()) return {fmt::format("its process {} on {} is stopped, dead, or cut off", process, host), true};
  ProcessState state = state_of(std::atoll(process.c_str()));
  state.words = fmt::format("its process {} {}", process, state.words);
  return state;
}

void raise_alarm(comm::Rendezvous& store, const std::string& reason) noexcept {
  try {
    store.set(alarm_key, reason);
  } catch (const std::exception&) {
    return;  // raised already, or the job is over
  }
}

}  // namespace plait::train
