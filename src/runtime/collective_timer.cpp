#include "runtime/collective_timer.h"

namespace plait::runtime {
namespace {

class TimedCommunicator final : public comm::Communicator {
 public:
  TimedCommunicator(comm::Communicator& inner, CollectiveTimer& timer) : inner_(inner), timer_(timer) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void all_reduce(StreamRef stream, View data, comm::Reduction reduction) override {
    timed("all_reduce", stream, [&] { inner_.all_reduce(stream, data, reduction); });
  }
  void reduce_scatter(StreamRef stream, View data, View part, comm::Reduction reduction) override {
    timed("reduce_scatter", stream, [&] { inner_.reduce_scatter(stream, data, part, reduction); });
  }
  void all_gather(StreamRef stream, View part, View data) override {
    timed("all_gather", stream, [&] { inner_.all_gather(stream, part, data); });
  }
  void broadcast(StreamRef stream, View data, int root) override {
    timed("broadcast", stream, [&] { inner_.broadcast(stream, data, root); });
  }
  void all_to_all(StreamRef stream, View send, View receive) override {
    timed("all_to_all", stream, [&] { inner_.all_to_all(stream, send, receive); });
  }
  void send(StreamRef stream, View data, int to) override { inner_.send(stream, data, to); }
  void receive(StreamRef stream, View data, int from) override { inner_.receive(stream, data, from); }
  void abort() noexcept override { inner_.abort(); }

 private:
  template <typename Call>
  void timed(const char* name, StreamRef stream, Call call) {
    if (!timer_.times) return call();
    CollectiveTimes::TimedCollective& entry = timer_.times->next(stream.device(), name, timer_.instruction);
    stream.record(entry.begin);
    call();
    stream.record(entry.end);
  }

  comm::Communicator& inner_;
  CollectiveTimer& timer_;
};

}  // namespace

CollectiveTimes::TimedCollective& CollectiveTimes::next(Device device, const char* name, int instruction) {
  if (used_ == entries_.size())
    entries_.push_back({name, instruction, Event(device, EventTiming::on), Event(device, EventTiming::on)});
  TimedCollective& entry = entries_[used_++];
  entry.name = name;
  entry.instruction = instruction;
  return entry;
}

std::unique_ptr<comm::Communicator> make_timed_communicator(comm::Communicator& inner, CollectiveTimer& timer) {
  return std::make_unique<TimedCommunicator>(inner, timer);
}

}  // namespace plait::runtime
