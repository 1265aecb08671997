#include "comm/p2p/links.h"

#include <atomic>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace plait::comm::p2p {
namespace {

// The interval at which an aborted end releases its waits again: a message in transit during the abort sets the counters back.
constexpr std::chrono::milliseconds release_interval{10};

// The part of both kinds that concerns a mailbox: announcing messages, and abandoning a peer that is not coming.
class AbortableLink : public Link {
 public:
  explicit AbortableLink(const LinkEnd& end) : end_(end) {}

 protected:
  void check_usable(const char* call, End end) const {
    require(end == end_.end, end_.label + ": " + call + " on the wrong end");
    if (aborted_) throw CommError(end_.label + ": " + call + ": aborted");
  }

  // Called once; `mailbox` must live until stop_releasing().
  void start_releasing(Mailbox& mailbox) noexcept {
    try {
      std::lock_guard lock(mutex_);
      if (releaser_.joinable()) return;
      releaser_ = std::jthread([this, &mailbox](std::stop_token stop) {
        make_current(end_.device);
        while (!stop.stop_requested()) {
          mailbox.release_waits();
          std::this_thread::sleep_for(release_interval);
        }
      });
    } catch (const std::exception&) {
      mailbox.release_waits();
    }
  }
  void stop_releasing() noexcept {
    std::lock_guard lock(mutex_);
    if (releaser_.joinable()) releaser_ = {};  // asks it to stop and joins
  }

  const LinkEnd end_;
  std::atomic<bool> aborted_{false};

 private:
  std::mutex mutex_;
  std::jthread releaser_;
};

class MailboxLink final : public AbortableLink {
 public:
  MailboxLink(const LinkEnd& end, MailboxMemory memory, const MailboxLinkOptions& options)
      : AbortableLink(end),
        options_(options),
        mailbox_(end.end, std::move(memory), end.shared->release_stream(), options.by_kernel) {}
  ~MailboxLink() override {
    stop_releasing();
    if (!options_.goodbye) return;
    mailbox_.drop_imported();
    options_.goodbye(end_.shared->left_to_go());
  }

  void send(StreamRef stream, View data, int place) override {
    check_usable("send", End::sender);
    if (options_.announce) mailbox_.announce(stream);
    mailbox_.send(stream, {&data, 1}, place);
  }
  void receive(StreamRef stream, View data, Event* announced, int place) override {
    check_usable("receive", End::receiver);
    const bool arrives = mailbox_.in_place() && data.bytes() > 0;  // into the receiver's own buffer
    if (arrives) {
      const auto index = static_cast<std::size_t>(place);
      require(index < options_.places.size() && data.data == memory_of(place) + options_.places[index].message_offset,
              "Link::receive: the message does not arrive there");
      if (!mailbox_.is_posted()) Link::post(stream);
    }
    if (options_.announce) mailbox_.await_announcement(stream);
    if (announced) stream.record(*announced);
    if (arrives) {
      CounterBatch counters;
      await_arrival(counters);
      counters.enqueue(stream);
    } else {
      mailbox_.receive(stream, {&data, 1});
    }
  }
  void await_place(CounterBatch& counters) override { in_place("await_place", End::sender).await_place(counters); }
  void mark_sent(CounterBatch& counters) override { in_place("mark_sent", End::sender).mark_sent(counters); }
  CountedCopy counted_copy(const void* data, std::size_t bytes, int place) override {
    return in_place("counted_copy", End::sender).counted_copy(data, bytes, place);
  }
  void post(CounterBatch& counters) override { in_place("post", End::receiver).post(counters); }
  void await_arrival(CounterBatch& counters) override { in_place("await_arrival", End::receiver).await_arrival(counters); }
  void signal(CounterBatch& counters) override { in_place("signal", End::sender).signal(counters); }
  CounterValue next_signal() override { return in_place("next_signal", End::sender).next_signal(); }
  void await_signal(CounterBatch& counters) override { in_place("await_signal", End::receiver).await_signal(counters); }
  const std::vector<Place>& places() const override { return options_.places; }
  std::byte* memory_of(int place) const override {
    const auto index = static_cast<std::size_t>(place);
    return mailbox_.place(place) - options_.places[index].message_offset;
  }
  bool announces() const override { return options_.announce; }
  std::size_t holds() const override { return mailbox_.holds(); }
  void abort() noexcept override {
    aborted_ = true;
    start_releasing(mailbox_);
  }

 private:
  Mailbox& in_place(const char* call, End end) {
    check_usable(call, end);
    require(mailbox_.in_place(), std::string("Link::") + call + ": it has no places");
    return mailbox_;
  }

  const MailboxLinkOptions options_;
  Mailbox mailbox_;
};

class CommunicatorLink final : public AbortableLink {
 public:
  CommunicatorLink(const LinkEnd& end, std::unique_ptr<Communicator> pair, std::unique_ptr<Mailbox> beacon)
      : AbortableLink(end), beacon_(std::move(beacon)), pair_(std::move(pair)) {}
  ~CommunicatorLink() override { stop_releasing(); }

  void send(StreamRef stream, View data, int) override {
    check_usable("send", End::sender);
    if (beacon_) beacon_->announce(stream);
    pair_->send(stream, data, 1);
  }
  const std::vector<Place>& places() const override { return no_places_; }
  std::byte* memory_of(int) const override { no_places(); }
  void await_place(CounterBatch&) override { no_places(); }
  void mark_sent(CounterBatch&) override { no_places(); }
  CountedCopy counted_copy(const void*, std::size_t, int) override { no_places(); }
  void post(CounterBatch&) override { no_places(); }
  void await_arrival(CounterBatch&) override { no_places(); }
  void signal(CounterBatch&) override { no_places(); }
  CounterValue next_signal() override { no_places(); }
  void await_signal(CounterBatch&) override { no_places(); }
  void receive(StreamRef stream, View data, Event* announced, int) override {
    check_usable("receive", End::receiver);
    if (beacon_) beacon_->await_announcement(stream);
    if (announced) stream.record(*announced);
    pair_->receive(stream, data, 0);
  }
  bool announces() const override { return beacon_ != nullptr; }
  std::size_t holds() const override { return 0; }
  void abort() noexcept override {
    aborted_ = true;
    pair_->abort();
    if (beacon_) start_releasing(*beacon_);
  }

 private:
  [[noreturn]] static void no_places() { throw InternalError("Link: NCCL and Gloo copy messages, there are no places"); }

  const std::vector<Place> no_places_;
  std::unique_ptr<Mailbox> beacon_;
  std::unique_ptr<Communicator> pair_;
};

}  // namespace

std::unique_ptr<Link> make_mailbox_link(const LinkEnd& end, MailboxMemory memory, const MailboxLinkOptions& options) {
  return std::make_unique<MailboxLink>(end, std::move(memory), options);
}

std::unique_ptr<Link> make_communicator_link(const LinkEnd& end, std::unique_ptr<Communicator> pair,
                                             std::unique_ptr<Mailbox> beacon) {
  return std::make_unique<CommunicatorLink>(end, std::move(pair), std::move(beacon));
}

}  // namespace plait::comm::p2p
