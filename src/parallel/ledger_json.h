// Ledgers as JSON: for reports, and to pass them from rank to rank.
#pragma once

#include <algorithm>
#include <string>

#include "core/limits.h"
#include "core/record.h"
#include "parallel/ledger.h"

namespace plait::parallel {

void declare(auto& field, Of<KindTimes> auto& times) {
  field("count", times.count);
  field("total_ms", times.total_ms);
  field.derived("hidden_ms", times.hidden_ms());
  field("exposed_ms", times.exposed_ms);
}

void declare(auto& field, Of<PeerTimes> auto& peer) {
  field("rank", peer.rank);
  field("late_ms", peer.late_ms);
  field("wire_ms", peer.wire_ms);
}

void declare(auto& field, Of<Ledger> auto& ledger) {
  field("step_ms", ledger.step_ms);
  field("compute_ms", ledger.compute_ms);
  field("bubble_ms", ledger.bubble_ms);
  field("other_ms", ledger.other_ms);
  field("unsplit_ms", ledger.unsplit_ms);
  field.object("kinds", [&](auto& kinds) {
    for (const CommunicationKind kind : communication_kinds) {
      std::string name = to_string(kind);
      std::ranges::replace(name, ' ', '_');
      // Before tensor collectives became exchanges, ledgers had them under another name.
      kinds.renamed(kind == CommunicationKind::exchanges ? "tensor_collectives" : name, name, ledger.of(kind));
    }
  });
  field("peers", ledger.peers, record::at_most(static_cast<std::size_t>(limits::ranks.most)));
}

}  // namespace plait::parallel
