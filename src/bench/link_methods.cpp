#include "bench/link_methods.h"

#include <algorithm>
#include <array>

#include "bench/bench_ranks.h"
#include "core/error.h"

namespace plait::bench {
namespace {

using comm::p2p::PairFacts;

constexpr std::array all_movers{Mover::copy_engine, Mover::sm_write, Mover::sm_read};

bool wanted(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// A short text instead of the obstacle if the benchmark could be started in a way that works.
std::string obstacle_text(const PairFacts& facts, const comm::p2p::Candidate& candidate) {
  const bool gpus = facts.sender.kind == DeviceKind::cuda && facts.receiver.kind == DeviceKind::cuda;
  const bool between_processes = candidate.transport == Transport::ipc || candidate.transport == Transport::vmm;
  if (gpus && between_processes && facts.same_process()) return "needs --processes";
  if (candidate.transport == Transport::direct && !facts.same_process() && facts.same_host())
    return "works between threads only: leave out --processes";
  return candidate.obstacle;
}

}  // namespace

void check(const MethodFilter& filter) {
  for (const std::string& name : filter.transports) {
    if (!named<Transport>(name)) {
      throw ConfigError({{"--transports", name, "must be among " + names_listed<Transport>(" and "), "", 0}});
    }
  }
  for (const std::string& name : filter.movers) {
    if (!named<Mover>(name)) {
      throw ConfigError({{"--movers", name, "must be among " + names_listed<Mover>(" and "), "", 0}});
    }
  }
}

std::vector<MethodChoice> methods_of(const PairFacts& facts, const MethodFilter& filter) {
  std::vector<MethodChoice> choices;
  bool first = true;
  const bool kernels = facts.sender.kind == DeviceKind::cuda && facts.receiver.kind == DeviceKind::cuda;
  for (const comm::p2p::Candidate& candidate : comm::p2p::candidates(facts)) {
    const Transport transport = candidate.transport;
    if (!wanted(filter.transports, to_string(transport))) continue;
    std::string obstacle = candidate.obstacle.empty() ? "" : obstacle_text(facts, candidate);
    if (filter.without_peer_access && needs_peer_access(transport)) obstacle = "excluded by --no-peer-access";
    if ((filter.first_transport || filter.with_and_without) && !obstacle.empty()) continue;
    if (filter.with_and_without && !first && needs_peer_access(transport)) continue;
    first = false;
    if (transport == Transport::nccl || !obstacle.empty()) {
      choices.push_back({{transport, std::nullopt}, obstacle});
    } else {
      for (const Mover mover : all_movers) {
        if (wanted(filter.movers, to_string(mover)) && (kernels || mover == Mover::copy_engine))
          choices.push_back({{transport, mover}, ""});
      }
    }
    if (filter.first_transport) break;
  }
  return choices;
}

void LinkEnds::make(launch::RankContext& rank, comm::p2p::LinkSpec link, const comm::p2p::LinkMaker& make_link) {
  link.rank = rank.rank;
  link.device = rank.device;
  made_.push_back(make_link(link, *rank.rendezvous));
  abort_with_rank(rank, made_.back());
  (rank.rank == link.from ? out_ : in_) = made_.back().get();
}

void LinkEnds::drop() {
  out_ = in_ = nullptr;
  made_.clear();
}

}  // namespace plait::bench
