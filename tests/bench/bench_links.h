// Links with a fault, and what a bench says about them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "bench/link_methods.h"
#include "comm/forwarding_link.h"
#include "comm/p2p/link.h"

namespace plait::bench::test {

// Passes everything on, and then does something to what has arrived. Host devices only.
class FaultyLink final : public comm::test::ForwardingLink {
 public:
  // `fault(number, data)` runs on the stream behind every receive; false drops a send.
  struct Fault {
    std::function<void(std::int64_t number, View data)> after_receive = [](std::int64_t, View) {};
    std::function<bool(std::int64_t number)> sends = [](std::int64_t) { return true; };
  };
  FaultyLink(std::unique_ptr<comm::p2p::Link> link, Fault fault) : ForwardingLink(std::move(link)), fault_(std::move(fault)) {}

  void send(StreamRef stream, View data, int place) override {
    if (fault_.sends(sent_++)) inner_->send(stream, data, place);
  }
  void receive(StreamRef stream, View data, Event* announced, int place) override {
    inner_->receive(stream, data, announced, place);
    stream.enqueue_host([fault = fault_.after_receive, number = received_++, data] { fault(number, data); });
  }

 private:
  Fault fault_;
  std::int64_t sent_ = 0, received_ = 0;
};

// Makes links with that fault, from rank `from` by one transport; all others as they are.
inline comm::p2p::LinkMaker faulty_links(Transport transport, int from, FaultyLink::Fault fault) {
  return [=](const comm::p2p::LinkSpec& spec, comm::Rendezvous& store) -> std::unique_ptr<comm::p2p::Link> {
    auto link = comm::p2p::make_link(spec, store);
    if (spec.transport != transport || spec.from != from) return link;
    return std::make_unique<FaultyLink>(std::move(link), fault);
  };
}

// Turns over one bit of byte `at` of message number `number`.
inline FaultyLink::Fault flip_bit(std::int64_t number, std::size_t at) {
  FaultyLink::Fault fault;
  fault.after_receive = [=](std::int64_t n, View data) {
    if (n == number && at < data.bytes()) static_cast<std::byte*>(data.data)[at] ^= std::byte{16};
  };
  return fault;
}

}  // namespace plait::bench::test
