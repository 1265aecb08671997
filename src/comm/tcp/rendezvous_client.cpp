// The other ranks' end of a rendezvous over TCP. A question that waits does not block others: each uses a connection of its
// own, an idle one or a new one.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/tcp/conversation.h"
#include "comm/tcp/rendezvous.h"
#include "comm/tcp/socket.h"
#include "core/error.h"

namespace plait::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Time limit for a connection after the first, when rank 0 is known to be there.
constexpr milliseconds reconnect_time{5'000};
// Rank 0's share of time limits for an answer that does not wait for other ranks: the asking rank has other duties.
constexpr int share_of_an_answer = 2;
constexpr milliseconds abort_time{1'000};

class Client final : public Rendezvous {
 public:
  explicit Client(const TcpRendezvousSpec& spec) : spec_(spec) {}

  bool try_set(const std::string& key, const std::string& value) override {
    return ask({Question::Kind::set, key, value}).kind == Answer::Kind::yes;
  }

  std::optional<std::string> wait(const std::string& key, milliseconds timeout) override {
    return value_of(
        ask({Question::Kind::wait, key, "", static_cast<std::uint64_t>(std::max<std::int64_t>(timeout.count(), 0))}));
  }

  std::optional<std::string> find(const std::string& key) override { return value_of(ask({Question::Kind::find, key, ""})); }

  void abort(const std::string& reason) noexcept override {
    try {
      ask({Question::Kind::abort, "", reason}, std::min(abort_time, spec_.timeout));
    } catch (...) {
      // Rank 0 is gone; the others find that out too.
      return;
    }
  }

 protected:
  std::string place() const override { return " in the rendezvous at " + at(spec_.host, spec_.port); }

 private:
  static std::optional<std::string> value_of(Answer answer) {
    return answer.kind == Answer::Kind::yes ? std::optional(std::move(answer.text)) : std::nullopt;
  }

  Answer ask(const Question& question) {
    const bool waits = question.kind == Question::Kind::wait && question.milliseconds > 0;
    return ask(question, waits ? spec_.timeout : spec_.timeout / share_of_an_answer);
  }

  // `limit`: for the answer, in addition to the time that rank 0 itself is to wait.
  Answer ask(const Question& question, milliseconds limit) {
    if (question.key.size() > Conversation::longest_key) {
      throw CommError("rendezvous: key '" + question.key.substr(0, 100) + "...' is too long");
    }
    Conversation conversation = take_conversation(limit);
    Answer answer;
    try {
      conversation.say(text_of(question));
      answer = answer_from(await_answer(conversation, milliseconds(question.milliseconds), limit));
    } catch (const CommError& error) {
      give_up(error.what());
    }
    {
      std::lock_guard lock(mutex_);
      idle_.push_back(std::move(conversation));
    }
    if (answer.kind == Answer::Kind::error) throw CommError(answer.text);
    return answer;
  }

  // Waits for rank 0, beyond rank 0's own wait, as long as any bytes move within the time limit.
  std::string await_answer(Conversation& conversation, milliseconds wait, milliseconds limit) const {
    auto deadline = Clock::now() + wait + limit;
    for (;;) {
      const bool all_said = conversation.send();
      if (auto text = conversation.hear()) return *std::move(text);
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) throw CommError("it does not answer; its host is cut off, or its process is stopped");
      pollfd event{conversation.descriptor(), static_cast<short>(all_said ? POLLIN : POLLIN | POLLOUT), 0};
      const int count = ::poll(&event, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
      if (count > 0) deadline = std::max(deadline, Clock::now() + limit);
    }
  }

  Conversation take_conversation(milliseconds limit) {
    milliseconds patience = spec_.timeout;
    std::string address;
    {
      std::lock_guard lock(mutex_);
      if (lost_) throw RendezvousLostError(*lost_);
      if (!idle_.empty()) {
        Conversation conversation = std::move(idle_.back());
        idle_.pop_back();
        return conversation;
      }
      if (!proven_address_.empty()) {
        patience = std::min(limit, reconnect_time);
        address = proven_address_;
      }
    }
    Caller caller(address.empty() ? spec_.host : address, spec_.port, {spec_.token, "rendezvous of " + spec_.job}, 0);
    const auto deadline = Clock::now() + patience;
    while (!caller.advance()) {
      const auto now = Clock::now();
      if (now >= deadline) {
        throw RendezvousLostError("rendezvous: rank 0, which keeps it, was not reached within " +
                                  std::to_string(patience.count()) + " ms at " + caller.problem());
      }
      const auto left = std::chrono::ceil<milliseconds>(std::min(deadline, caller.wake()) - now);
      pollfd event{caller.descriptor(), caller.awaited(), 0};
      ::poll(&event, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    }
    std::lock_guard lock(mutex_);
    proven_address_ = caller.address();
    return {caller.take(), Proof::Side::caller};
  }

  // The keys are gone, together with the rank that kept them.
  [[noreturn]] void give_up(const std::string& why) {
    std::lock_guard lock(mutex_);
    if (!lost_) lost_ = "rendezvous: rank 0, which keeps it at " + at(spec_.host, spec_.port) + ", is gone: " + why;
    throw RendezvousLostError(*lost_);
  }

  const TcpRendezvousSpec spec_;
  std::mutex mutex_;  // guards the members below
  std::vector<Conversation> idle_;
  std::string proven_address_;       // where rank 0 was, if spec_.host has more than one; empty: not reached yet
  std::optional<std::string> lost_;  // why
};

}  // namespace

std::shared_ptr<Rendezvous> join_tcp_rendezvous(const TcpRendezvousSpec& spec) { return std::make_shared<Client>(spec); }

}  // namespace plait::comm
