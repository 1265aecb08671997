#include "train/ledger_exchange.h"

#include "parallel/ledger_json.h"

namespace plait::train {

std::vector<parallel::Ledger> gather_ledgers(launch::RankContext& rank, const std::string& name, const parallel::Ledger& own,
                                             std::chrono::milliseconds timeout) {
  using Json = nlohmann::ordered_json;
  const auto key = [&](int of) { return "ledger." + name + "." + std::to_string(of); };
  if (!rank.is_main) {
    rank.rendezvous->set(key(rank.rank), Json(own).dump());
    return {};
  }
  std::vector<parallel::Ledger> all = {own};
  for (int other = 1; other < rank.size; ++other) {
    try {
      all.push_back(Json::parse(rank.rendezvous->get(key(other), timeout)).get<parallel::Ledger>());
    } catch (const nlohmann::json::exception& error) {
      throw CommError("rank " + std::to_string(other) + " sent something that is not a ledger: " + error.what());
    }
  }
  return all;
}

}  // namespace plait::train
