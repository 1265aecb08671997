#include "launch/standstill.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "comm/word.h"
#include "core/device.h"
#include "core/limits.h"
#include "parallel/program/program_set.h"

namespace plait::launch {
namespace {

using Stream = RankStanding::Stream;

// Lines about ranks; more would push the important ones off the screen.
constexpr std::size_t most_lines = 16;

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

std::string words(const Stream& s) {
  if (s.peers.empty()) return fmt::format("is at work on `{}`", s.instruction);
  return fmt::format("waits in `{}` for {}", s.instruction, ranks_text(s.peers));
}

std::string words(const RankStanding& standing) {
  std::vector<std::string> parts;
  for (const Stream& s : standing.streams) parts.push_back(words(s));
  if (parts.empty()) {
    parts.push_back(standing.next.empty()
                        ? "has nothing to do on its device: its thread is between two steps"
                        : fmt::format("has nothing to do on its device: its thread is about to enqueue `{}`", standing.next));
  }
  return fmt::format("{}", fmt::join(parts, " and "));
}

std::uint64_t count_of(const std::map<int, std::uint64_t>& counts, int rank) {
  const auto it = counts.find(rank);
  return it == counts.end() ? 0 : it->second;
}

class Explainer {
 public:
  Explainer(const std::vector<std::optional<RankStanding>>& answers, const std::function<Silence(int)>& silence)
      : answers_(answers) {
    for (int rank = 0; rank < size(); ++rank)
      silences_.push_back(answers_[static_cast<std::size_t>(rank)] ? Silence{} : silence(rank));
  }

  Explanation explain() const {
    std::set<int> awaited;
    for (int rank = 0; rank < size(); ++rank) {
      for (const int peer : awaited_by(rank)) awaited.insert(peer);
    }
    std::vector<std::string> culprits = silent(Silence::Kind::failed, awaited, false);
    // A failed rank's own words explain everything: the others only lost it.
    if (!culprits.empty()) return {fmt::format("{}", fmt::join(culprits, "; ")), "", true};
    culprits = silent(Silence::Kind::dead, awaited, false);
    const bool certain = !culprits.empty();
    const auto add = [&](std::vector<std::string> more) { culprits.insert(culprits.end(), more.begin(), more.end()); };
    if (culprits.empty()) add(lost_messages());
    if (culprits.empty()) add(silent(Silence::Kind::unknown, awaited, true));
    if (culprits.empty()) add(silent(Silence::Kind::done, awaited, true));
    if (culprits.empty()) add(not_waiting(awaited));
    if (culprits.empty()) add(circle());
    if (culprits.empty()) add(silent(Silence::Kind::unknown, awaited, false));
    if (culprits.empty()) culprits.push_back("no rank waits for another any more");
    return {fmt::format("{}", fmt::join(culprits, "; ")), details(), certain};
  }

 private:
  int size() const { return static_cast<int>(answers_.size()); }
  const RankStanding* of(int rank) const {
    const auto& answer = answers_[static_cast<std::size_t>(rank)];
    return answer ? &*answer : nullptr;
  }

  std::set<int> awaited_by(int rank) const {
    std::set<int> peers;
    if (!of(rank)) return peers;
    for (const Stream& s : of(rank)->streams) peers.insert(s.peers.begin(), s.peers.end());
    return peers;
  }

  std::vector<std::string> silent(Silence::Kind kind, const std::set<int>& awaited, bool only_awaited) const {
    std::vector<std::string> texts;
    for (int rank = 0; rank < size(); ++rank) {
      const Silence& silence = silences_[static_cast<std::size_t>(rank)];
      if (of(rank) || silence.kind != kind || (only_awaited && !awaited.contains(rank))) continue;
      texts.push_back(fmt::format("rank {} {}", rank, silence.words));
    }
    return texts;
  }

  // Both ends count messages, which distinguishes a message that is sent and does not arrive from one that is not sent.
  std::vector<std::string> lost_messages() const {
    std::vector<std::string> texts;
    for (int rank = 0; rank < size(); ++rank) {
      if (!of(rank)) continue;
      for (const Stream& s : of(rank)->streams) {
        const RankStanding* sender = s.from < 0 ? nullptr : of(s.from);
        if (!sender) continue;
        const std::uint64_t received = count_of(of(rank)->received, s.from), sent = count_of(sender->sent, rank);
        const bool sending =
            std::any_of(sender->streams.begin(), sender->streams.end(), [&](const Stream& t) { return t.to == rank; });
        if (sent > received) {
          texts.push_back(
              fmt::format("a message from rank {} to rank {} was lost: {} were sent, {} came, and rank {} waits in `{}`",
                          s.from, rank, sent, received, rank, s.instruction));
        } else if (sending && sent == received) {
          texts.push_back(fmt::format(
              "a message from rank {} to rank {} (`{}` there) is on its way and does not arrive: the link between them hangs",
              s.from, rank, s.instruction));
        }
      }
    }
    return texts;
  }

  std::vector<std::string> not_waiting(const std::set<int>& awaited) const {
    std::vector<std::string> texts;
    for (const int rank : awaited) {
      if (of(rank) && awaited_by(rank).empty()) texts.push_back(fmt::format("rank {} {}", rank, words(*of(rank))));
    }
    return texts;
  }

  // A circle of ranks that wait for each other.
  std::vector<std::string> circle() const {
    std::vector<int> members;
    for (int rank = 0; rank < size(); ++rank) {
      std::vector<int> reached = {rank};
      for (std::size_t n = 0; n < reached.size(); ++n) {
        for (const int peer : awaited_by(reached[n])) {
          if (std::find(reached.begin(), reached.end(), peer) == reached.end()) reached.push_back(peer);
        }
      }
      const auto back = std::any_of(reached.begin(), reached.end(), [&](int r) { return awaited_by(r).contains(rank); });
      if (back) members.push_back(rank);
    }
    if (members.empty()) return {};
    if (const std::string call = common_collective(members); !call.empty()) {
      return {
          fmt::format("{} have all come to `{}`, which does not end: what carries it between them hangs, the library, the "
                      "network or links",
                      ranks_text(members), call)};
    }
    return {fmt::format("{} wait for each other in a circle", ranks_text(members))};
  }

  // The collective that all of them are in, if there is one.
  std::string common_collective(const std::vector<int>& ranks) const {
    for (const Stream& s : of(ranks.front())->streams) {
      if (s.peers.empty() || s.from >= 0 || s.to >= 0) continue;
      const auto is_in = [&](int rank) {
        const auto& streams = of(rank)->streams;
        return std::any_of(streams.begin(), streams.end(),
                           [&](const Stream& t) { return t.instruction == s.instruction && t.from < 0 && t.to < 0; });
      };
      if (std::all_of(s.peers.begin(), s.peers.end(), [&](int p) { return of(p) && is_in(p); }) &&
          std::all_of(ranks.begin(), ranks.end(), is_in)) {
        return s.instruction;
      }
    }
    return "";
  }

  std::string details() const {
    const std::string own_host = host_name();
    std::string text;
    std::size_t lines = 0;
    for (int rank = 0; rank < size(); ++rank) {
      const RankStanding* standing = of(rank);
      if (!standing) continue;
      if (++lines > most_lines) continue;
      const std::string where = standing->host == own_host ? "" : " on " + standing->host;
      text += fmt::format("\n  rank {} (process {}{}) {}", rank, standing->process, where, words(*standing));
    }
    if (lines > most_lines) text += fmt::format("\n  and {} ranks more", lines - most_lines);
    return text;
  }

  const std::vector<std::optional<RankStanding>>& answers_;
  std::vector<Silence> silences_;
};

}  // namespace

RankStanding rank_standing(int rank, const parallel::Layout& layout, parallel::ModelEnds ends,
                           const runtime::ProgressBoard::Reading& reading) {
  RankStanding standing{.rank = rank, .process = ::getpid(), .host = host_name()};
  for (const runtime::StreamCount& count : reading.counts) {
    if (count.stream.peer < 0) continue;
    auto& messages = count.stream.role == parallel::StreamRole::send ? standing.sent : standing.received;
    messages[layout.moved(rank, stage_axis, count.stream.peer)] = count.done;
  }
  if (!reading.program) return standing;
  if (reading.next >= 0) standing.next = to_string(reading.program->at(reading.next));
  for (const runtime::Standstill& still : runtime::standstills(reading)) {
    if (!still.is_free()) continue;
    const parallel::Instruction& instruction = reading.program->at(still.instruction);
    Stream stream{.instruction = to_string(instruction)};
    const auto add_others = [&](parallel::Group group) {
      for (const int member : layout.members(group, rank, ends)) {
        if (member != rank) stream.peers.push_back(member);
      }
    };
    if (still.stream.peer >= 0) {
      const int peer = layout.moved(rank, stage_axis, still.stream.peer);
      (still.stream.role == parallel::StreamRole::send ? stream.to : stream.from) = peer;
      stream.peers.push_back(peer);
    } else if (const auto group = parallel::collective_group(instruction)) {
      add_others(group->group);
    }
    standing.streams.push_back(std::move(stream));
  }
  return standing;
}

std::map<int, std::uint64_t> CountsByRank::read(const JsonField& field) const {
  std::map<int, std::uint64_t> counts;
  for (const JsonField& entry : field.items(limits::ranks.most)) {
    const std::vector<JsonField> pair = entry.items(2);
    if (pair.size() != 2) entry.refuse("must be a rank and a number of messages");
    counts[static_cast<int>(pair[0].whole(0, limits::ranks.most))] = pair[1].natural();
  }
  return counts;
}

bool is_among(const RankStanding& standing, int size) {
  const auto is_rank = [size](int rank) { return rank >= 0 && rank < size; };
  return is_rank(standing.rank) && std::all_of(standing.streams.begin(), standing.streams.end(), [&](const Stream& s) {
           return s.from < size && s.to < size && std::all_of(s.peers.begin(), s.peers.end(), is_rank);
         });
}

Explanation explain_standstill(const std::vector<std::optional<RankStanding>>& answers,
                               const std::function<Silence(int rank)>& silence) {
  return Explainer(answers, silence).explain();
}

}  // namespace plait::launch
