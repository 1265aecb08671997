#include "train/report/ledger_text.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <numeric>

#include "core/parse_number.h"

namespace plait::train {
namespace {

using parallel::CommunicationKind;
using parallel::Ledger;
using parallel::PeerTimes;

double percent(double part, const Ledger& ledger) { return ledger.step_ms > 0 ? 100 * part / ledger.step_ms : 0; }

// Times below this do not show in a line.
constexpr double shown_ms = 0.05;
constexpr double told_percent = 1;  // of a step: less is not worth a line in a log

std::string name_of(int rank) { return rank < 0 ? "the last rank" : fmt::format("rank {}", rank); }

// The peer with the longest wait; nullptr if there was none.
const PeerTimes* latest_peer(const Ledger& ledger) {
  const auto it = std::max_element(ledger.peers.begin(), ledger.peers.end(),
                                   [](const PeerTimes& a, const PeerTimes& b) { return a.late_ms < b.late_ms; });
  return it == ledger.peers.end() || it->late_ms < shown_ms ? nullptr : &*it;
}

// "rank 2 4.0"
std::string latest(const Ledger& ledger) {
  const PeerTimes* peer = latest_peer(ledger);
  return peer == nullptr ? "" : fmt::format("{} {:.1f}", name_of(peer->rank), peer->late_ms);
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

std::string lost_time_text(const Ledger& ledger) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (percent(ledger.exposed_ms(), ledger) >= told_percent) {
    const auto most = std::ranges::max_element(parallel::communication_kinds, {},
                                               [&](CommunicationKind kind) { return ledger.of(kind).exposed_ms; });
    add(fmt::format("exposed {:.1f} % (most of it {})", percent(ledger.exposed_ms(), ledger), to_string(*most)));
  }
  if (percent(ledger.bubble_ms, ledger) >= told_percent) add(fmt::format("bubble {:.1f} %", percent(ledger.bubble_ms, ledger)));
  if (text.empty()) return "";
  if (const PeerTimes* late = latest_peer(ledger)) add("waited for " + name_of(late->rank));
  return text;
}

TextTable ledger_table(const std::vector<Ledger>& ledgers, const std::vector<int>& ranks) {
  TextTable table({{"rank"},
                   {"step ms"},
                   {"compute"},
                   {"exposed dp"},
                   {"exposed p2p"},
                   {"exposed tp"},
                   {"hidden"},
                   {"bubble"},
                   {"other"},
                   {"waited longest for", Align::left}});
  for (const int rank : ranks) {
    const Ledger& l = ledgers[static_cast<std::size_t>(rank)];
    const auto time = [](double ms) { return fmt::format("{:.2f}", ms); };
    const auto share = [&](double ms) { return fmt::format("{:.2f} ({:.1f} %)", ms, percent(ms, l)); };
    table.add({std::to_string(rank), time(l.step_ms), time(l.compute_ms), share(l.exposed_dp_ms()), share(l.exposed_p2p_ms()),
               share(l.exposed_tp_ms()), time(l.hidden_ms()), share(l.bubble_ms), time(l.other_ms), latest(l)});
  }
  return table;
}

TextTable ledger_table(const std::vector<Ledger>& ledgers) {
  std::vector<int> ranks(ledgers.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ledger_table(ledgers, ranks);
}

int worst_rank(const std::vector<Ledger>& ledgers) {
  const auto it = std::max_element(ledgers.begin(), ledgers.end(),
                                   [](const Ledger& a, const Ledger& b) { return lost_share(a) < lost_share(b); });
  return static_cast<int>(it - ledgers.begin());
}

using parallel::Ledger;

std::string ExceededBound::text() const {
  return fmt::format("bounds.{}: {:.4g} % allowed, {:.2f} % lost on rank {}", name, 100 * limit, 100 * share, rank);
}

void to_json(nlohmann::ordered_json& json, const ExceededBound& bound) {
  json = {{"bound", bound.name}, {"limit", bound.limit}, {"share", bound.share}, {"rank", bound.rank}, {"text", bound.text()}};
}

std::vector<ExceededBound> exceeded_bounds(const std::vector<Ledger>& ledgers, const BoundsConfig& bounds) {
  std::vector<ExceededBound> exceeded;
  const auto check = [&](const char* name, const std::string& bound, auto&& lost_ms) {
    const std::optional<double> limit = percentage(bound);
    if (!limit) return;  // no bound
    ExceededBound worst{name, *limit, -1, 0};
    for (std::size_t rank = 0; rank < ledgers.size(); ++rank) {
      const Ledger& ledger = ledgers[rank];
      const double share = ledger.step_ms > 0 ? lost_ms(ledger) / ledger.step_ms : 0;
      if (share > worst.share) worst.share = share, worst.rank = static_cast<int>(rank);
    }
    if (worst.share > *limit) exceeded.push_back(worst);
  };
  check("exposed_dp", bounds.exposed_dp, [](const Ledger& l) { return l.exposed_dp_ms(); });
  check("exposed_p2p", bounds.exposed_p2p, [](const Ledger& l) { return l.exposed_p2p_ms(); });
  check("exposed_tp", bounds.exposed_tp, [](const Ledger& l) { return l.exposed_tp_ms(); });
  check("exposed", bounds.exposed, [](const Ledger& l) { return l.exposed_ms(); });
  check("bubble", bounds.bubble, [](const Ledger& l) { return l.bubble_ms; });
  return exceeded;
}

}  // namespace plait::train
