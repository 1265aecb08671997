#include "train/report/ledger_text.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <numeric>

namespace plait::train {
namespace {

using parallel::CommunicationKind;
using parallel::Ledger;
using parallel::PeerTimes;

double percent(double part, const Ledger& ledger) { return ledger.step_ms > 0 ? 100 * part / ledger.step_ms : 0; }

// What is shorter than this does not show in a line.
constexpr double shown_ms = 0.05;

std::string name_of(int rank) { return rank < 0 ? "the last rank" : fmt::format("rank {}", rank); }

// "rank 2 4.0": the one that was waited for longest; empty where nobody was.
std::string latest(const Ledger& ledger) {
  const auto it = std::max_element(ledger.peers.begin(), ledger.peers.end(),
                                   [](const PeerTimes& a, const PeerTimes& b) { return a.late_ms < b.late_ms; });
  return it == ledger.peers.end() || it->late_ms < shown_ms ? "" : fmt::format("{} {:.1f}", name_of(it->rank), it->late_ms);
}

double lost_share(const Ledger& ledger) { return percent(ledger.exposed_ms() + ledger.bubble_ms, ledger); }

}  // namespace

std::string ledger_line(const Ledger& ledger) {
  std::string text = fmt::format("exposed {:.1f} ms of {:.1f} ({:.1f} %)", ledger.exposed_ms(), ledger.step_ms,
                                 percent(ledger.exposed_ms(), ledger));
  std::string separator = ": ";
  for (const CommunicationKind kind : parallel::communication_kinds) {
    if (ledger.of(kind).exposed_ms < shown_ms) continue;
    text += fmt::format("{}{} {:.1f}", separator, to_string(kind), ledger.of(kind).exposed_ms);
    separator = ", ";
  }
  if (ledger.unsplit_ms >= shown_ms) {
    text += fmt::format(" ({:.1f} of it may be waiting for a sender: its link does not tell)", ledger.unsplit_ms);
  }
  text += fmt::format("; hidden {:.1f}; bubble {:.1f} ({:.1f} %)", ledger.hidden_ms(), ledger.bubble_ms,
                      percent(ledger.bubble_ms, ledger));
  const std::string late = latest(ledger);
  return late.empty() ? text : text + ", waited for " + late;
}

std::string ledger_table(const std::vector<Ledger>& ledgers, const std::vector<int>& ranks) {
  std::string text =
      fmt::format("{:>4}  {:>9}  {:>9}  {:>16}  {:>16}  {:>16}  {:>9}  {:>16}  {:>8}  {}", "rank", "step ms", "compute",
                  "exposed dp", "exposed p2p", "exposed tp", "hidden", "bubble", "other", "waited longest for");
  for (const int rank : ranks) {
    const Ledger& l = ledgers[static_cast<std::size_t>(rank)];
    const auto share = [&](double ms) { return fmt::format("{:.2f} ({:4.1f} %)", ms, percent(ms, l)); };
    text += fmt::format("\n{:>4}  {:>9.2f}  {:>9.2f}  {:>16}  {:>16}  {:>16}  {:>9.2f}  {:>16}  {:>8.2f}  {}", rank, l.step_ms,
                        l.compute_ms, share(l.exposed_dp_ms()), share(l.exposed_p2p_ms()), share(l.exposed_tp_ms()),
                        l.hidden_ms(), share(l.bubble_ms), l.other_ms, latest(l));
    while (text.ends_with(' ')) text.pop_back();
  }
  return text;
}

std::string ledger_table(const std::vector<Ledger>& ledgers) {
  std::vector<int> ranks(ledgers.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ledger_table(ledgers, ranks);
}

int worst_rank(const std::vector<Ledger>& ledgers) {
  const auto it = std::max_element(ledgers.begin(), ledgers.end(),
                                   [](const Ledger& a, const Ledger& b) { return lost_share(a) < lost_share(b); });
  return static_cast<int>(it - ledgers.begin());
}

}  // namespace plait::train
