// Rank 0's end of a rendezvous over TCP: one thread that answers everybody's questions.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "comm/tcp/conversation.h"
#include "comm/tcp/rendezvous.h"
#include "comm/tcp/socket.h"
#include "core/error.h"

namespace plait::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A rank's main thread, its watchdog, its signal thread, and a thread that says that it is busy have one each.
constexpr std::size_t connections_of_a_rank = 4;
constexpr milliseconds look_interval{5'000};  // for dropping callers that have not proved themselves
constexpr milliseconds longest_wait = std::chrono::hours(24 * 365);

class Server final : public TcpRendezvousServer {
 public:
  Server(const TcpRendezvousSpec& spec, const std::vector<std::string>& addresses)
      : Server(spec, addresses, listeners(addresses, spec.port)) {}

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  ~Server() override {
    {
      std::lock_guard lock(mutex_);
      leave_by_ = Clock::now() + timeout_ / 5;
    }
    wake();
    thread_.join();
  }

  int port() const override { return port_; }

  bool try_set(const std::string& key, const std::string& value) override {
    if (!keys_->try_set(key, value)) return false;
    {
      std::lock_guard lock(mutex_);
      set_here_.push_back(key);
    }
    wake();
    return true;
  }

  std::optional<std::string> wait(const std::string& key, milliseconds timeout) override { return keys_->wait(key, timeout); }
  std::optional<std::string> find(const std::string& key) override { return keys_->find(key); }

  void abort(const std::string& reason) noexcept override {
    keys_->abort(reason);
    {
      std::lock_guard lock(mutex_);
      aborted_here_ = true;
    }
    wake();
  }

 protected:
  std::string place() const override {
    const bool reached_here_alone = std::all_of(addresses_.begin(), addresses_.end(), is_loopback);
    return " in the rendezvous at " + at(host_, port_) +
           (reached_here_alone ? " (which is " + addresses_.front() + " here, and only this host reaches that)" : "");
  }

 private:
  struct Waiting {
    std::string key;
    Clock::time_point deadline;
  };
  struct Guest {
    explicit Guest(Conversation with) : conversation(std::move(with)) {}
    Conversation conversation;
    std::optional<Waiting> waiting = {};
  };
  enum Id : std::uint64_t { woken, reception, first_guest };

  Server(const TcpRendezvousSpec& spec, const std::vector<std::string>& addresses, std::vector<FileDescriptor> listeners)
      : host_(spec.host),
        addresses_(addresses),
        port_(port_of(listeners.front())),
        timeout_(spec.timeout),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        events_(::epoll_create1(EPOLL_CLOEXEC)),
        reception_(std::move(listeners), {spec.token, "rendezvous of " + spec.job},
                   connections_of_a_rank * static_cast<std::size_t>(spec.ranks)) {
    if (!wake_ || !events_) throw CommError("rendezvous: cannot wait for the other ranks: " + errno_text());
    watch(EPOLL_CTL_ADD, wake_.get(), woken, EPOLLIN);
    watch(EPOLL_CTL_ADD, reception_.descriptor(), reception, EPOLLIN);
    thread_ = std::thread([this] { run(); });
  }

  // With port 0, all listen on the port that the first got.
  static std::vector<FileDescriptor> listeners(const std::vector<std::string>& addresses, int port) {
    require(!addresses.empty(), "a rendezvous that listens nowhere");
    std::vector<FileDescriptor> all;
    for (const std::string& address : addresses) {
      all.push_back(listen_on(address, all.empty() ? port : port_of(all.front())));
    }
    return all;
  }

  void watch(int operation, int descriptor, std::uint64_t id, std::uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (::epoll_ctl(events_.get(), operation, descriptor, &event) != 0) {
      throw CommError("rendezvous: cannot wait for the other ranks: " + errno_text());
    }
  }

  void wake() const noexcept { static_cast<void>(::eventfd_write(wake_.get(), 1)); }

  void run() {
    for (;;) {
      try {
        const auto now = Clock::now();
        {
          std::lock_guard lock(mutex_);
          if (leave_by_ && (guests_.empty() || now >= *leave_by_)) return;
        }
        turn();
      } catch (const std::exception& error) {
        keys_->abort(std::string("rank 0 cannot serve the rendezvous: ") + error.what());
        answer_all();
        std::this_thread::sleep_for(milliseconds(10));  // the cause does not go away by itself
      }
    }
  }

  void turn() {
    std::array<epoll_event, 64> events{};
    const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), time_to_next_deadline());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      switch (event.data.u64) {
        case woken: answer_what_changed_here(); break;
        case reception:
          for (Proven& proven : reception_.serve()) admit(std::move(proven));
          break;
        default: attend(event.data.u64); break;
      }
    }
    if (count == 0) {
      for (Proven& proven : reception_.serve()) admit(std::move(proven));  // also drops callers that stay silent for long
    }
    if (deadlines_.empty() || deadlines_.begin()->first > Clock::now()) return;
    std::vector<std::uint64_t> due;
    for (const auto& [deadline, id] : deadlines_) {
      if (deadline > Clock::now()) break;
      due.push_back(id);
    }
    for (const std::uint64_t id : due) answer(id, {Answer::Kind::no, ""});
  }

  int time_to_next_deadline() const {
    std::optional<Clock::time_point> next;
    if (!deadlines_.empty()) next = deadlines_.begin()->first;
    {
      std::lock_guard lock(mutex_);
      if (leave_by_) next = next ? std::min(*next, *leave_by_) : *leave_by_;
    }
    if (!next) return static_cast<int>(look_interval.count());
    const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, look_interval.count()));
  }

  void admit(Proven proven) {
    const std::uint64_t id = next_id_++;
    const int descriptor = proven.socket.get();
    guests_.try_emplace(id, Conversation(std::move(proven), Proof::Side::listener));
    watch(EPOLL_CTL_ADD, descriptor, id, EPOLLIN);
  }

  void attend(std::uint64_t id) {
    const auto found = guests_.find(id);
    if (found == guests_.end()) return;
    Guest& guest = found->second;
    try {
      if (guest.conversation.send()) watch(EPOLL_CTL_MOD, guest.conversation.descriptor(), id, EPOLLIN);
      if (auto text = guest.conversation.hear()) {
        if (guest.waiting) throw CommError("a question came before the last was answered");
        take(id, question_from(*std::move(text)));
      }
    } catch (const CommError&) {
      drop(id);  // it has gone, or its words cannot be used
    }
  }

  void drop(std::uint64_t id) {
    forget_wait(id);
    guests_.erase(id);
  }

  void take(std::uint64_t id, const Question& question) {
    switch (question.kind) {
      case Question::Kind::set: {
        const bool set = keys_->try_set(question.key, question.value);
        answer(id, {set ? Answer::Kind::yes : Answer::Kind::no, ""});
        if (set) answer_waiting_for(question.key);
        return;
      }
      case Question::Kind::find: {
        const auto value = keys_->find(question.key);
        return answer(id, {value ? Answer::Kind::yes : Answer::Kind::no, value.value_or("")});
      }
      case Question::Kind::abort:
        keys_->abort(question.value);
        answer(id, {Answer::Kind::yes, ""});
        return answer_all();
      case Question::Kind::wait:
        if (const auto known = look_up(question.key)) return answer(id, *known);
        if (question.milliseconds == 0) return answer(id, {Answer::Kind::no, ""});
        const auto wait = std::min(milliseconds(question.milliseconds & 0x7fffffffffffffff), longest_wait);
        guests_.at(id).waiting = Waiting{question.key, Clock::now() + wait};
        waiting_.insert({question.key, id});
        deadlines_.insert({guests_.at(id).waiting->deadline, id});
    }
  }

  // The answer to a wait question; nullopt if it has to wait.
  std::optional<Answer> look_up(const std::string& key) const {
    try {
      auto value = keys_->wait(key, milliseconds(0));
      if (!value) return std::nullopt;
      return Answer{Answer::Kind::yes, *std::move(value)};
    } catch (const CommError& error) {
      return Answer{Answer::Kind::error, error.what()};
    }
  }

  void answer(std::uint64_t id, const Answer& answer) {
    forget_wait(id);
    const auto found = guests_.find(id);
    if (found == guests_.end()) return;
    Conversation& conversation = found->second.conversation;
    try {
      conversation.say(text_of(answer));
      if (!conversation.send()) watch(EPOLL_CTL_MOD, conversation.descriptor(), id, EPOLLIN | EPOLLOUT);
    } catch (const CommError&) {
      drop(id);
    }
  }

  void forget_wait(std::uint64_t id) {
    const auto found = guests_.find(id);
    if (found == guests_.end() || !found->second.waiting) return;
    const Waiting& wait = *found->second.waiting;
    const auto erase_from = [id](auto& map, const auto& key) {
      const auto [begin, end] = map.equal_range(key);
      const auto one = std::find_if(begin, end, [id](const auto& entry) { return entry.second == id; });
      if (one != end) map.erase(one);
    };
    erase_from(waiting_, wait.key);
    erase_from(deadlines_, wait.deadline);
    found->second.waiting.reset();
  }

  void answer_waiting_for(const std::string& key) {
    std::vector<std::uint64_t> ids;
    const auto [begin, end] = waiting_.equal_range(key);
    for (auto entry = begin; entry != end; ++entry) ids.push_back(entry->second);
    for (const std::uint64_t id : ids) {
      if (const auto known = look_up(key)) answer(id, *known);
    }
  }

  void answer_all() {
    std::vector<std::string> keys;
    for (const auto& [key, id] : waiting_) keys.push_back(key);
    for (const std::string& key : keys) answer_waiting_for(key);
  }

  void answer_what_changed_here() {
    eventfd_t count = 0;
    static_cast<void>(::eventfd_read(wake_.get(), &count));
    std::vector<std::string> keys;
    bool aborted = false;
    {
      std::lock_guard lock(mutex_);
      keys.swap(set_here_);
      aborted = aborted_here_;
    }
    for (const std::string& key : keys) answer_waiting_for(key);
    if (aborted) answer_all();
  }

  const std::shared_ptr<Rendezvous> keys_ = make_thread_rendezvous();
  const std::string host_;
  const std::vector<std::string> addresses_;
  const int port_;
  const milliseconds timeout_;
  const FileDescriptor wake_, events_;

  // Used by the thread alone.
  Reception reception_;
  std::map<std::uint64_t, Guest> guests_;  // by id
  std::multimap<std::string, std::uint64_t> waiting_;
  std::multimap<Clock::time_point, std::uint64_t> deadlines_;
  std::uint64_t next_id_ = first_guest;

  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::string> set_here_;
  bool aborted_here_ = false;
  std::optional<Clock::time_point> leave_by_;

  std::thread thread_;
};

// A name may get its addresses only after its host has started, as names of pods do.
std::vector<std::string> wait_for_addresses(const std::string& host, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    try {
      return addresses_of(host);
    } catch (const CommError&) {
      if (Clock::now() >= deadline) throw;
    }
    std::this_thread::sleep_for(std::min(timeout, milliseconds(200)));
  }
}

}  // namespace

std::shared_ptr<TcpRendezvousServer> serve_tcp_rendezvous(const TcpRendezvousSpec& spec,
                                                          const std::vector<std::string>& addresses) {
  return std::make_shared<Server>(spec, addresses);
}

std::vector<std::string> rendezvous_addresses(const std::string& host, const std::string& own, milliseconds timeout) {
  std::vector<std::string> addresses;
  for (const std::string& address : wait_for_addresses(host, timeout)) {
    if (is_wildcard(address)) {
      throw CommError("rendezvous: '" + host +
                      "' is every address of a host; name the one of rank 0 that the others can reach");
    }
    if (is_local(address) && std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  }
  const bool known = std::find(addresses.begin(), addresses.end(), own) != addresses.end();
  if (!known && !is_loopback(own)) addresses.push_back(own);
  if (addresses.empty()) throw CommError("rendezvous: '" + host + "', where rank 0 is to listen, is no address of this host");
  return addresses;
}

}  // namespace plait::comm
