// The facts that all ranks of a job know about each other's devices.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "comm/meeting.h"
#include "comm/p2p/pair_facts.h"

namespace plait::comm::p2p {

class JobFacts {
 public:
  // Collective over the meeting, whose members are the ranks from 0 on. `device`: this rank's, current on the calling thread.
  JobFacts(Device device, PeerAccessUse access, Meeting& meeting);
  // From given facts: `paths` by rank, and by the other rank of the host.
  JobFacts(std::vector<EndFacts> ends, std::vector<std::map<int, PathFacts>> paths)
      : ends_(std::move(ends)), paths_(std::move(paths)) {}

  int ranks() const { return static_cast<int>(ends_.size()); }
  const EndFacts& end(int rank) const { return ends_[static_cast<std::size_t>(rank)]; }
  bool same_host(int a, int b) const { return end(a).process.host == end(b).process.host; }
  PairFacts pair(int from, int to) const;  // for ranks on two hosts only the facts of the ends

 private:
  std::vector<EndFacts> ends_;
  std::vector<std::map<int, PathFacts>> paths_;  // [from][to], of one host
};

}  // namespace plait::comm::p2p
