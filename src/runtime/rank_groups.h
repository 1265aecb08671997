// The communicators of one rank.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/make_communicator.h"
#include "comm/p2p/link.h"
#include "parallel/rank_plan.h"

namespace plait::runtime {

// Ends a rank's communication: what waits for a peer goes on, to no good, and check() throws the reason.
class CommunicationAbort {
 public:
  explicit CommunicationAbort(std::vector<std::function<void()>> actions) : actions_(std::move(actions)) {}
  void abort(const std::string& reason) noexcept;  // from any thread; the first reason is the one
  void check() const;                              // CommError once aborted

  // What made a rank fail: a call on its communicators, which is mostly the consequence of something else, or anything else.
  enum class Failure { communication, own };
  // `tell` is called before communication ends because this rank failed. After a failure of communication it may find out what
  // is behind that, and call abort() with it.
  void on_failure(std::function<void(const std::string& what, Failure failure)> tell) { tell_ = std::move(tell); }
  // The rank's thread: communication ends because of `what`, unless it has been ended already.
  void fail(const std::string& what, Failure failure) noexcept;
  // `wait` is called when a failed rank's streams have come to their end: freeing memory of a GPU may wait for streams of other
  // ranks of this process, and keeps everybody from releasing those. So it returns when they are released too.
  void on_drained(std::function<void()> wait) { wait_ = std::move(wait); }
  void drained() const noexcept;

 private:
  std::vector<std::function<void()>> actions_;
  std::function<void(const std::string&, Failure)> tell_;
  std::function<void()> wait_;
  mutable std::mutex mutex_;
  std::optional<std::string> reason_;
};

struct RankGroups {
  std::shared_ptr<comm::Communicator> tensor, data, tied, world;
  // One for each direction in which messages go, in the order in which both ends make them and let go of them.
  std::vector<std::shared_ptr<comm::p2p::Link>> links;
  std::map<int, comm::p2p::Link*> outgoing, incoming;  // of `links`, by pipeline rank at the other end
  std::vector<comm::p2p::LinkReport> reports;          // of the outgoing ones
  std::map<parallel::BufferId, std::byte*> places;     // what messages arrive in without a copy, in the links' memory

  comm::Communicator& of(parallel::Group group) const;
  // Of all of them. Whoever shares it may use it after they are gone.
  std::shared_ptr<CommunicationAbort> abort;
};

struct GroupOptions {
  Device device;
  std::chrono::milliseconds timeout{60'000};
  int max_ctas = 0;
  std::string host_interface = "127.0.0.1";
  std::optional<comm::p2p::Transport> transport;  // of links; nothing: the best that works, pair by pair
  std::map<std::pair<int, int>, comm::p2p::Transport> pair_transports = {};  // of links between these ranks instead, either way
  std::optional<comm::p2p::Mover> mover;
  // Groups are called by what they are for and their first rank, "tensor.0"; links by their ends, "link.0.1".
  comm::CommunicatorMaker make_communicator = comm::make_communicator;
  comm::p2p::LinkMaker make_link = comm::p2p::make_link;
};

// Collective over all ranks of the layout, which make their groups in one order. Groups of the same ranks whose collectives are
// on the same stream are one communicator.
RankGroups make_groups(const parallel::RankPlan& plan, const GroupOptions& options, comm::Rendezvous& store);

}  // namespace plait::runtime
