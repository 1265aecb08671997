#include "train/report/overlap_bounds.h"

#include <spdlog/fmt/fmt.h>

#include "core/parse_number.h"

namespace plait::train {

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
