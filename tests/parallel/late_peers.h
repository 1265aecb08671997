// A ledger's times for one peer, for tests.
#pragma once

#include "parallel/ledger.h"

namespace plait::parallel::test {

inline double late_of(const Ledger& ledger, int rank) {
  for (const PeerTimes& peer : ledger.peers) {
    if (peer.rank == rank) return peer.late_ms;
  }
  return 0;
}

}  // namespace plait::parallel::test
