// What a ledger says of a peer, for tests.
#pragma once

#include "parallel/ledger.h"

namespace plait::runtime::test {

inline double late_of(const parallel::Ledger& ledger, int rank) {
  for (const parallel::PeerTimes& peer : ledger.peers) {
    if (peer.rank == rank) return peer.late_ms;
  }
  return 0;
}

}  // namespace plait::runtime::test
