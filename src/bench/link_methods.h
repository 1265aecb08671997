// The methods of sending a message that a benchmark measures: a transport and a mover.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/p2p/facts.h"
#include "comm/p2p/link.h"
#include "launch/rank_context.h"

namespace plait::bench {

struct LinkMethod {
  Transport transport = Transport::nccl;
  std::optional<Mover> mover;  // nullopt: the communication library's own, or any mover of an impossible transport
  std::string transport_text() const { return to_string(transport); }
  std::string mover_text() const { return mover ? to_string(*mover) : "-"; }
  std::string name() const { return transport_text() + (mover ? "." + to_string(*mover) : ""); }
};

struct MethodChoice {
  LinkMethod method;
  std::string obstacle;  // empty: possible, as far as known before a link is made
};

// Selects the methods to measure; empty: all.
struct MethodFilter {
  std::vector<std::string> transports = {}, movers = {};
  // Leaves out methods that need peer access, as on a machine whose GPUs cannot reach each other.
  bool without_peer_access = false;
  // For each pair only the first choice of `comm.p2p: auto`, with every mover.
  bool first_transport = false;
  // That choice, and the methods that work without peer access: host and nccl.
  bool with_and_without = false;
};

// ConfigError for unknown names.
void check(const MethodFilter& filter);

// All transports × movers for a pair, in the order of the transports. A method that only works with the other launch mode says
// so: "needs --processes".
std::vector<MethodChoice> methods_of(const comm::p2p::PairFacts& facts, const MethodFilter& filter);

// The links of one rank, to and from others.
class LinkEnds {
 public:
  // Makes `link` with this rank and its device; it is aborted with the rank. Collective over its two ends; CommError if it
  // cannot be made.
  void make(launch::RankContext& rank, comm::p2p::LinkSpec link, const comm::p2p::LinkMaker& make_link);
  void drop();

  // The latest link in each direction; null before the first.
  comm::p2p::Link* out() const { return out_; }  // this rank sends
  comm::p2p::Link* in() const { return in_; }

 private:
  std::vector<std::shared_ptr<comm::p2p::Link>> made_;  // both ends make and destroy them in this order
  comm::p2p::Link *out_ = nullptr, *in_ = nullptr;
};

}  // namespace plait::bench
