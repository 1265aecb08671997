#include "parallel/ledger_json.h"

#include <algorithm>

namespace plait::parallel {
namespace {

using Json = nlohmann::ordered_json;

std::string key_of(CommunicationKind kind) {
  std::string key = to_string(kind);
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
}

}  // namespace

void to_json(Json& json, const Ledger& ledger) {
  json = {{"step_ms", ledger.step_ms},
          {"compute_ms", ledger.compute_ms},
          {"bubble_ms", ledger.bubble_ms},
          {"other_ms", ledger.other_ms},
          {"unsplit_ms", ledger.unsplit_ms}};
  for (const CommunicationKind kind : communication_kinds) {
    const KindTimes& times = ledger.of(kind);
    json["kinds"][key_of(kind)] = {{"count", times.count},
                                   {"total_ms", times.total_ms},
                                   {"hidden_ms", times.hidden_ms()},
                                   {"exposed_ms", times.exposed_ms}};
  }
  json["peers"] = Json::array();
  for (const PeerTimes& peer : ledger.peers) {
    json["peers"].push_back({{"rank", peer.rank}, {"late_ms", peer.late_ms}, {"wire_ms", peer.wire_ms}});
  }
}

void from_json(const Json& json, Ledger& ledger) {
  const auto number = [](const Json& from, const char* name) { return from.at(name).get<double>(); };
  ledger = {};
  ledger.step_ms = number(json, "step_ms"), ledger.compute_ms = number(json, "compute_ms");
  ledger.bubble_ms = number(json, "bubble_ms"), ledger.other_ms = number(json, "other_ms");
  ledger.unsplit_ms = number(json, "unsplit_ms");
  for (const CommunicationKind kind : communication_kinds) {
    const Json& kinds = json.at("kinds");
    // As ledgers were written before tensor collectives became exchanges.
    const auto old = kind == CommunicationKind::exchanges ? kinds.find("tensor_collectives") : kinds.end();
    const Json& times = old != kinds.end() ? *old : kinds.at(key_of(kind));
    ledger.of(kind) = {number(times, "count"), number(times, "total_ms"), number(times, "exposed_ms")};
  }
  for (const Json& peer : json.at("peers")) {
    ledger.peers.push_back({peer.at("rank").get<int>(), number(peer, "late_ms"), number(peer, "wire_ms")});
  }
}

}  // namespace plait::parallel
