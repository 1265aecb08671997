#include "runtime/rank_groups.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/error.h"

namespace plait::runtime {
namespace {

// Thread blocks of NCCL on a link. A message is a few MB and has a whole pass of computation to travel; more blocks would only
// take SMs from it.
constexpr int link_ctas = 4;

class GroupsBuilder {
 public:
  GroupsBuilder(const parallel::RankPlan& plan, const GroupOptions& options, comm::Rendezvous& store)
      : plan_(plan), options_(options), store_(store) {}

  void communicators(RankGroups& groups) {
    for (const parallel::GroupStream& kind : parallel::group_streams_of(plan_)) {
      const std::vector<int> members = plan_.members(kind.group);
      const bool by_links = plan_.goes_by_links(kind);
      std::shared_ptr<comm::Communicator>& same = by_members_[{kind.role, by_links, members}];
      if (!same && by_links)
        same = options_.replace(to_string(kind), groups.by_links[kind] = make_by_links(kind, members));
      else if (!same)
        same = options_.replace(to_string(kind), make(kind, members));
      groups.communicators[kind] = same;
    }
  }

  void links(RankGroups& groups) {
    const int me = plan_.coordinates()[stage_axis];
    std::set<std::pair<int, int>> pairs;  // (from, to), the same set and order at both ends
    for (const parallel::StreamSpec& stream : plan_.train.streams) {
      if (stream.role == parallel::StreamRole::send) pairs.insert({me, stream.peer});
      if (stream.role == parallel::StreamRole::receive) pairs.insert({stream.peer, me});
    }
    for (const auto& [from, to] : pairs) {
      comm::p2p::LinkSpec spec{.from = plan_.layout.moved(plan_.rank, stage_axis, from),
                               .to = plan_.layout.moved(plan_.rank, stage_axis, to),
                               .rank = plan_.rank,
                               .device = options_.device,
                               .message_bytes = plan_.sizes.own_residual_bytes(),
                               .transport = transport_between(plan_.layout.moved(plan_.rank, stage_axis, from),
                                                              plan_.layout.moved(plan_.rank, stage_axis, to)),
                               .peer_access = options_.peer_access,
                               .mover = options_.mover,
                               .places = {},
                               .timeout = options_.timeout,
                               .max_ctas = options_.max_ctas > 0 ? std::min(options_.max_ctas, link_ctas) : link_ctas,
                               .host_interface = options_.host_interface};
      spec.name = "link." + std::to_string(spec.from) + "." + std::to_string(spec.to);
      const std::vector<parallel::ReceivedBuffer> received =
          from == me ? std::vector<parallel::ReceivedBuffer>{} : received_from(from);
      for (const parallel::ReceivedBuffer& r : received) spec.places.push_back(place_of(r));
      std::shared_ptr<comm::p2p::Link> link = options_.make_link(spec, store_);
      for (std::size_t n = 0; from != me && n < link->places().size(); ++n) {
        groups.places[received[n].buffer] = link->memory_of(static_cast<int>(n));
      }
      if (from == me) groups.reports.push_back(link->report());
      (from == me ? groups.outgoing[to] : groups.incoming[from]) = link.get();
      groups.links.push_back(std::move(link));
    }
  }

 private:
  std::vector<parallel::ReceivedBuffer> received_from(int pipeline_rank) const {
    std::vector<parallel::ReceivedBuffer> buffers = parallel::received_buffers(plan_);
    std::erase_if(buffers, [&](const parallel::ReceivedBuffer& r) { return r.sender != pipeline_rank; });
    return buffers;
  }

  std::shared_ptr<comm::p2p::LinkCommunicator> make_by_links(const parallel::GroupStream& kind,
                                                             const std::vector<int>& members) const {
    const bool exchanges = kind == parallel::exchange_group, tensor = kind.group == parallel::groups::tensor;
    const std::string name = exchanges                           ? "exchange."
                             : tensor                            ? "tensor-reduction."
                             : kind == parallel::reduction_group ? "reduction."
                                                                 : to_string(kind) + ".links.";
    const auto place = std::find(members.begin(), members.end(), plan_.rank);
    comm::p2p::LinkCommunicatorSpec spec{
        .setting = tensor ? "comm.exchanges" : "comm.reductions",
        .group = {.name = name + std::to_string(members.front()),
                  .rank = static_cast<int>(place - members.begin()),
                  .size = static_cast<int>(members.size()),
                  .device = options_.device,
                  .timeout = options_.timeout,
                  .max_ctas = options_.max_ctas > 0 ? std::min(options_.max_ctas, link_ctas) : link_ctas,
                  .host_interface = options_.host_interface},
        .members = members,
        .symmetric_bytes = exchanges ? plan_.memory.bytes_of(parallel::Allocation::symmetric) : 0,
        .slice_bytes = plan_.slice_bytes(kind),
        .longest_by_kernel = plan_.longest_by_kernel(kind),
        .transport = [this](int from, int to) { return transport_between(from, to); },
        .peer_access = options_.peer_access};
    spec.make_link = options_.make_link;
    return std::make_shared<comm::p2p::LinkCommunicator>(spec, store_);
  }

  std::optional<Transport> transport_between(int a, int b) const {
    const auto given = options_.pair_transports.find(std::minmax(a, b));
    return given == options_.pair_transports.end() ? options_.transport : given->second;
  }

  comm::p2p::Place place_of(const parallel::ReceivedBuffer& received) const {
    const View whole(nullptr, plan_.sizes.compute, received.shape);
    const std::size_t row_bytes = whole.bytes() / static_cast<std::size_t>(received.shape[0]);
    return {place_id(received.buffer), whole.bytes(), static_cast<std::size_t>(received.message_row) * row_bytes};
  }

  std::shared_ptr<comm::Communicator> make(const parallel::GroupStream& kind, const std::vector<int>& members) {
    const auto place = std::find(members.begin(), members.end(), plan_.rank);
    require(place != members.end(), "make_groups: the rank is not in its own group");
    return options_.make_communicator({.name = to_string(kind) + "." + std::to_string(members.front()),
                                       .rank = static_cast<int>(place - members.begin()),
                                       .size = static_cast<int>(members.size()),
                                       .device = options_.device,
                                       .timeout = options_.timeout,
                                       .max_ctas = options_.max_ctas,
                                       .host_interface = options_.host_interface},
                                      store_);
  }

  const parallel::RankPlan& plan_;
  const GroupOptions& options_;
  comm::Rendezvous& store_;
  // By the role of their stream, whether they go by links, and their members.
  std::map<std::tuple<parallel::StreamRole, bool, std::vector<int>>, std::shared_ptr<comm::Communicator>> by_members_;
};

}  // namespace

comm::p2p::PlaceId place_id(const parallel::BufferId& buffer) {
  return {static_cast<int>(buffer.kind), buffer.index, buffer.slot};
}

comm::Communicator& RankGroups::of(const parallel::GroupStream& group) const {
  const auto found = communicators.find(group);
  require(found != communicators.end(), "RankGroups: a group that this rank has no communicator of");
  return *found->second;
}

std::byte* RankGroups::symmetric_memory() const {
  const auto found = by_links.find(parallel::exchange_group);
  return found == by_links.end() ? nullptr : found->second->symmetric_memory();
}

std::function<void()> RankGroups::abort_action() const {
  std::vector<std::weak_ptr<comm::Communicator>> groups;
  std::set<std::shared_ptr<comm::Communicator>> each;
  for (const auto& [group, communicator] : communicators) {
    if (each.insert(communicator).second) groups.push_back(communicator);
  }
  const std::vector<std::weak_ptr<comm::p2p::Link>> weak_links(links.begin(), links.end());
  return [groups, weak_links] {
    const auto abort_all = [](const auto& members) {
      for (const auto& member : members) {
        if (const auto alive = member.lock()) alive->abort();
      }
    };
    abort_all(groups);
    abort_all(weak_links);
  };
}

RankGroups make_groups(const parallel::RankPlan& plan, const GroupOptions& options, comm::Rendezvous& store) {
  GroupsBuilder builder(plan, options, store);
  RankGroups groups;
  builder.communicators(groups);
  builder.links(groups);
  return groups;
}

}  // namespace plait::runtime
