// The way of one rank's messages to another: a mailbox, or the communication library's send and receive, chosen at start-up and
// tried before use.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/p2p/choice.h"
#include "comm/p2p/pair_facts.h"
#include "comm/p2p/transport.h"
#include "comm/rendezvous.h"
#include "core/stream.h"
#include "core/view.h"

namespace plait::comm::p2p {

// A buffer of the receiver that messages are to arrive in without a copy.
struct Place {
  std::string name;
  std::size_t bytes = 0;
  std::size_t message_offset = 0;  // a message begins here
  friend bool operator==(const Place&, const Place&) = default;
};

struct LinkSpec {
  std::string name = {};  // unique among the job's links; both ends give the same
  int from = 0, to = 1;   // ranks of the job; this one is either
  int rank = 0;
  Device device;                            // this end's, current on the calling thread
  std::size_t message_bytes = 0;            // of the largest message; both ends give the same
  std::optional<Transport> transport = {};  // nothing: the best that works
  std::optional<Mover> mover = {};          // nothing: the fastest, by trial, at the size of the messages
  int slots = 2;                            // messages that may be on their way at once, where they are copied out of slots
  // Receiver: buffers that the link is to make, so that messages can arrive in them. Empty: messages are copied.
  std::vector<Place> places = {};
  // The sender tells when a message is ready to travel, so that the receiver knows a late sender from a slow wire.
  bool announce = true;
  std::chrono::milliseconds timeout{60'000};
  int max_ctas = 0;  // of NCCL's send and receive
  std::string host_interface = "127.0.0.1";
};

// A transport that was better than the chosen one and why it is not used.
struct PassedOver {
  Transport transport = Transport::direct;
  std::string reason;
};

// What was chosen for a pair; the same on both ends.
struct LinkReport {
  int from = 0, to = 0;
  PairFacts facts;
  Transport transport = Transport::nccl;
  Mover mover = Mover::copy_engine;
  std::string bridge;  // relay: bus id of the GPU between
  std::vector<PassedOver> better;
  double trial_microseconds = 0;  // of one message of the largest size
  double trial_gb_per_s = 0;
};

class Link {
 public:
  // Everything that was enqueued on either end must have run: the last end to go frees memory of both GPUs, and that waits for
  // what is still going on there (cudaFree) while no other thread can give them work.
  virtual ~Link() = default;
  // On the end that `from` is, or `to`. Messages arrive in the order in which they are sent; sizes agree. With `announced`,
  // that event completes when the sender had the message ready to travel (at once where the link does not announce:
  // `announces`). `place`: index into places() of the buffer that the message goes to; `data` of the receive is then in that
  // buffer, which must be free where the stream comes to the receive. Without a meaning where places() is empty.
  virtual void send(StreamRef stream, View data, int place = -1) = 0;
  virtual void receive(StreamRef stream, View data, Event* announced = nullptr, int place = -1) = 0;
  // Receiver with places: the place of the next message that was not posted yet is free from this point of the stream. For
  // those who know before they come to the receive, which posts what was not.
  virtual void post(StreamRef stream) = 0;
  // LinkSpec::places of the receiver, on both ends; empty where the transport copies.
  virtual const std::vector<Place>& places() const = 0;
  virtual std::byte* memory_of(int place) const = 0;  // as this end addresses it
  virtual bool announces() const = 0;                 // false: LinkSpec::announce is, or the ends are on two hosts
  // Makes what waits on this end go on (what it then reads is worth nothing) and later calls throw CommError. From any thread.
  virtual void abort() noexcept = 0;
  const LinkReport& report() const { return report_; }

 private:
  friend std::unique_ptr<Link> make_link(const LinkSpec& spec, Rendezvous& store);
  LinkReport report_;
};

// Collective over the two ends; a rank with several links makes them in an order that all ranks share, and destroys them in
// one, since ends wait for each other there too. Tries the link with messages of a pattern that would show corruption; one that
// delivers wrong data is passed over, or an error where it was asked for by name. CommError when nothing is left or the peer
// does not come.
std::unique_ptr<Link> make_link(const LinkSpec& spec, Rendezvous& store);

// "0 -> 1  NV18 (switch)  direct, copy engine  381 GB/s ..." for a table at start-up: one line per link with its pass-overs.
std::string describe(const LinkReport& report);

}  // namespace plait::comm::p2p
