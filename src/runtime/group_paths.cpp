#include "runtime/group_paths.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "comm/p2p/choice.h"
#include "core/error.h"

namespace plait::runtime {
namespace {

using comm::Carrier;

constexpr std::size_t longest_problem = 2048;

bool concerns(RequiredPath required, bool same_host) { return same_host == (required == RequiredPath::p2p); }

bool meets(RequiredPath required, Carrier carrier) {
  if (carrier == Carrier::p2p || carrier == Carrier::memory) return true;
  return required == RequiredPath::rdma && carrier == Carrier::gdrdma;
}

// The reason why a path is not better, and what to do about it.
std::string remedy(RequiredPath required, const GroupPaths& group, const comm::PairPath& path,
                   const comm::p2p::JobFacts& facts) {
  if (facts.end(path.from).kind == DeviceKind::host) return "ranks on CPUs have no such way: use GPUs (launch.device: cuda)";
  if (required == RequiredPath::rdma) {
    return "GPUDirect RDMA needs a NIC with RDMA near the GPU, and nvidia-peermem or DMA-BUF (`plait topo` shows the NICs; "
           "NCCL_IB_DISABLE, NCCL_IB_HCA and NCCL_NET_GDR_LEVEL can rule it out)";
  }
  const std::string obstacle = obstacle_to_peer_access(facts.pair(path.from, path.to));
  if (!obstacle.empty()) return obstacle;
  if (group.paths.by == "link") return "peer access is there: comm.p2p or comm.p2p_pairs asks for another way";
  return "peer access is there: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL (in the environment, /etc/nccl.conf or ~/.nccl.conf) or "
         "containers that do not share their namespaces keep NCCL from it";
}

}  // namespace

std::vector<GroupPaths> paths_of(const RankGroups& groups, const parallel::RankPlan& plan) {
  std::vector<GroupPaths> all;
  std::vector<const comm::Communicator*> seen;
  for (const parallel::GroupStream& kind : parallel::group_streams_of(plan)) {
    const auto found = groups.communicators.find(kind);
    if (found == groups.communicators.end() || found->second->size() == 1) continue;
    const auto known = std::find(seen.begin(), seen.end(), found->second.get());
    if (known != seen.end()) {
      all[static_cast<std::size_t>(known - seen.begin())].name += ", " + to_string(kind);
      continue;
    }
    GroupPaths group{to_string(kind), plan.members(kind.group), found->second->paths()};
    for (comm::PairPath& path : group.paths.pairs) {
      path.from = group.members.at(static_cast<std::size_t>(path.from));
      path.to = group.members.at(static_cast<std::size_t>(path.to));
    }
    seen.push_back(found->second.get());
    all.push_back(std::move(group));
  }
  for (const comm::p2p::LinkReport& link : groups.reports) all.push_back({"messages", {link.from, link.to}, link.paths});
  return all;
}

std::string unmet_requirement(RequiredPath required, const std::vector<GroupPaths>& groups, const comm::p2p::JobFacts& facts) {
  if (required == RequiredPath::none) return "";
  const std::string asked = "comm.require=" + to_string(required) + " is not met: ";
  constexpr const char* way_out = "; comm.require=none runs it all the same";
  for (const GroupPaths& group : groups) {
    const bool concerned = std::any_of(group.members.begin(), group.members.end(), [&](int a) {
      return std::any_of(group.members.begin(), group.members.end(),
                         [&](int b) { return a != b && concerns(required, facts.same_host(a, b)); });
    });
    if (!concerned) continue;
    if (!group.paths.unknown.empty())
      return asked + "by which way the ranks of '" + group.name + "' are connected is not known: " + group.paths.unknown +
             way_out;
    for (const comm::PairPath& path : group.paths.pairs) {
      if (!concerns(required, facts.same_host(path.from, path.to)) || meets(required, path.carrier)) continue;
      return fmt::format("{}rank {} -> rank {} ({}) goes by {} ({}): {}{}", asked, path.from, path.to, group.name, path.via,
                         group.paths.by, remedy(required, group, path, facts), way_out);
    }
  }
  return "";
}

void require_paths(RequiredPath required, const std::vector<GroupPaths>& own, const comm::p2p::JobFacts& facts,
                   comm::Meeting& meeting) {
  if (required == RequiredPath::none) return;
  const std::string problem = comm::as_field(unmet_requirement(required, own, facts), longest_problem);
  for (const std::string& of_rank : meeting.gather("require", problem)) {
    if (!of_rank.empty()) throw comm::p2p::NoTransport(comm::as_field(of_rank, longest_problem));
  }
}

}  // namespace plait::runtime
