#include "comm/p2p/job_facts.h"

namespace plait::comm::p2p {

// A rank reports only paths to the ranks of its host, in their order: a job may have thousands of ranks, and about the others
// nothing is known.
JobFacts::JobFacts(Device device, PeerAccessUse access, Meeting& meeting)
    : ends_(meeting.gather("facts/end", end_facts(meeting.rank(), device, access))) {
  const auto neighbours = [&](int rank) {
    std::vector<int> of_host;
    for (int other = 0; other < ranks(); ++other) {
      if (other != rank && same_host(rank, other)) of_host.push_back(other);
    }
    return of_host;
  };
  std::vector<PathFacts> own;
  for (const int to : neighbours(meeting.rank())) own.push_back(path_facts(end(meeting.rank()), end(to)));
  const std::vector<std::vector<PathFacts>> told = meeting.gather("facts/paths", own);
  paths_.resize(ends_.size());
  for (int from = 0; from < ranks(); ++from) {
    const auto at = static_cast<std::size_t>(from);
    const std::vector<int> others = neighbours(from);
    if (told[at].size() != others.size()) meeting.refuse("facts/paths", from, "it is not one path to each rank of its host");
    for (std::size_t n = 0; n < others.size(); ++n) paths_[at].emplace(others[n], told[at][n]);
  }
}

PairFacts JobFacts::pair(int from, int to) const {
  const auto path = [&](int a, int b) {
    const auto& known = paths_[static_cast<std::size_t>(a)];
    const auto found = known.find(b);
    return found == known.end() ? PathFacts{} : found->second;
  };
  return {end(from), end(to), path(from, to), path(to, from)};
}

}  // namespace plait::comm::p2p
