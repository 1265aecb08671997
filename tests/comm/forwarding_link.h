// A link that passes everything on: what tests change is overridden.
#pragma once

#include <memory>

#include "comm/p2p/link.h"

namespace plait::comm::test {

class ForwardingLink : public p2p::Link {
 public:
  explicit ForwardingLink(std::shared_ptr<p2p::Link> inner) : inner_(std::move(inner)) {}
  void send(StreamRef stream, View data, int place) override { inner_->send(stream, data, place); }
  void receive(StreamRef stream, View data, Event* announced, int place) override {
    inner_->receive(stream, data, announced, place);
  }
  void await_place(p2p::CounterBatch& counters) override { inner_->await_place(counters); }
  void mark_sent(p2p::CounterBatch& counters) override { inner_->mark_sent(counters); }
  p2p::CountedCopy counted_copy(const void* data, std::size_t bytes, int place) override {
    return inner_->counted_copy(data, bytes, place);
  }
  void post(p2p::CounterBatch& counters) override { inner_->post(counters); }
  void await_arrival(p2p::CounterBatch& counters) override { inner_->await_arrival(counters); }
  void signal(p2p::CounterBatch& counters) override { inner_->signal(counters); }
  p2p::CounterValue next_signal() override { return inner_->next_signal(); }
  void await_signal(p2p::CounterBatch& counters) override { inner_->await_signal(counters); }
  const std::vector<p2p::Place>& places() const override { return inner_->places(); }
  std::byte* memory_of(int place) const override { return inner_->memory_of(place); }
  bool announces() const override { return inner_->announces(); }
  std::size_t holds() const override { return inner_->holds(); }
  void abort() noexcept override { inner_->abort(); }
  const p2p::LinkReport& report() const override { return inner_->report(); }

 protected:
  const std::shared_ptr<p2p::Link> inner_;
};

}  // namespace plait::comm::test
