// A rendezvous over TCP: rank 0 keeps the keys and serves them, the others ask. No directory has to be shared.
//
// All ranks know the job's token beforehand. It does not travel: each connection begins with a proof by both ends
// (comm/tcp/proof.h), and everything after it is sealed, so that no word can be read or changed on its way.
// Strangers who connect are dropped and change nothing.
//
// In addition to comm/rendezvous.h's promises: any number of threads may call. Only the first call waits for rank 0 to come,
// for `timeout` at most. When rank 0 is gone, so are the keys: every call is then a RendezvousLostError that says so. So when
// rank 0 releases its store, it stays until all ranks that came have released theirs, for a fifth of `timeout` at most.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous.h"
#include "comm/tcp/proof.h"

namespace plait::comm {

struct TcpRendezvousSpec {
  std::string host;  // of rank 0: a name or an address
  int port = 0;
  Secret token;  // known to all ranks
  int ranks = 1;
  std::string job;  // distinguishes it from jobs with the same token, such as an earlier attempt
  std::chrono::milliseconds timeout{60'000};
};

class TcpRendezvousServer : public Rendezvous {
 public:
  virtual int port() const = 0;
};

// Rank 0's store. Listens on `addresses` (numbers, of this host) at spec.port, or, if that is 0, at any free port. CommError if
// one of them is taken.
std::shared_ptr<TcpRendezvousServer> serve_tcp_rendezvous(const TcpRendezvousSpec& spec,
                                                          const std::vector<std::string>& addresses);

// The store of another rank.
std::shared_ptr<Rendezvous> join_tcp_rendezvous(const TcpRendezvousSpec& spec);

// The addresses that rank 0 listens on: those of `host` that belong to this host, and `own`, this host's address in
// comm.interface, unless it is loopback and there are others. Waits up to `timeout` for a name that has no address yet.
// CommError if there is none.
std::vector<std::string> rendezvous_addresses(const std::string& host, const std::string& own,
                                              std::chrono::milliseconds timeout);

}  // namespace plait::comm
