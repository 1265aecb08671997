// What a rendezvous over TCP has beyond the others: strangers, a wire that others may see, and an end that may be missing.
#include "comm/tcp/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/tcp/reception.h"
#include "comm/tcp/socket.h"
#include "core/error.h"
#include "core/error_of.h"
#include "descriptor_count.h"
#include "rank_threads.h"
#include "rendezvous_kinds.h"
#include "tcp_stranger.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

class TcpRendezvous : public NothingLeftBehind {
 protected:
  TcpStore tcp_;
};

TEST_F(TcpRendezvous, StrangersAreDroppedAndChangeNothing) {
  const auto server = tcp_.serve();
  const std::vector<std::string> sayings = things_strangers_say();
  std::vector<FileDescriptor> strangers;
  for (int round = 0; round < 3; ++round) {
    for (const std::string& words : sayings) {
      strangers.push_back(connect_to(tcp_.spec.port));
      send_text(strangers.back(), words);
      connect_to(tcp_.spec.port);  // and goes away at once
    }
    const auto client = tcp_.join();
    client->set("round" + std::to_string(round), "value");
    EXPECT_EQ(server->get("round" + std::to_string(round), seconds(30)), "value");
  }
  for (std::size_t i = 0; i < strangers.size(); ++i) {
    const std::string& words = sayings[i % sayings.size()];
    if (words.empty() || words.starts_with("plait-1")) continue;
    EXPECT_TRUE(is_dropped_within(strangers[i], 5000)) << words.substr(0, 20);
  }
}

TEST_F(TcpRendezvous, MoreSilentStrangersThanThereIsRoomForDoNotKeepARankOut) {
  const auto server = tcp_.serve();
  std::vector<FileDescriptor> strangers;
  for (std::size_t i = 0; i < Reception::least_room + 100; ++i) strangers.push_back(connect_to(tcp_.spec.port));
  const auto start = Clock::now();
  tcp_.join()->set("key", "value");
  EXPECT_LT(Clock::now() - start, seconds(20));
  EXPECT_EQ(server->get("key", seconds(30)), "value");
}

TEST_F(TcpRendezvous, WhoHasAnotherTokenOrIsOfAnotherJobDoesNotGetIn) {
  const auto server = tcp_.serve();
  server->set("key", "value");
  TcpStore other_token = tcp_, other_job = tcp_;
  other_token.spec.token = Secret::from_token("another token");
  other_job.spec.job = "test, second attempt";
  for (TcpStore* other : {&other_token, &other_job}) {
    other->spec.timeout = milliseconds(2000);
    EXPECT_THAT(error_of<RendezvousLostError>([&] { return other->join()->find("key"); }),
                AllOf(HasSubstr("rank 0"), HasSubstr("within 2000 ms"), HasSubstr("127.0.0.1:"),
                      HasSubstr("does not know this job's secret, or is of another job")));
  }
}

TEST_F(TcpRendezvous, RankZeroThatIsAbsentIsNamedWithinTheTimeLimit) {
  {
    tcp_.serve();
  }  // a port on which nobody listens any more
  tcp_.spec.timeout = milliseconds(300);
  const auto start = Clock::now();
  EXPECT_THAT(
      error_of<RendezvousLostError>([&] {
        tcp_.join()->set("key", "value");
        return 0;
      }),
      AllOf(HasSubstr("rank 0"), HasSubstr("within 300 ms"), HasSubstr(std::to_string(tcp_.spec.port)), HasSubstr("refused")));
  EXPECT_LT(Clock::now() - start, seconds(10));
}

TEST_F(TcpRendezvous, RankZeroMayComeLast) {
  {
    tcp_.serve();
  }
  auto client = tcp_.join();
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(200));
    const auto server = tcp_.serve();
    EXPECT_EQ(server->get("key", seconds(30)), "value");
  });
  client->set("key", "value");
  client.reset();
  late.join();
}

TEST_F(TcpRendezvous, AnotherProgramAtThePortIsNotRankZero) {
  const FileDescriptor listener = listen_on("127.0.0.1", 0);
  tcp_.spec.port = port_of(listener);
  std::atomic<bool> done = false;
  std::thread impostor([&] {
    while (!done) {
      const FileDescriptor caller(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!caller) {
        std::this_thread::sleep_for(milliseconds(1));
        continue;
      }
      const std::string hello = heard_within(caller, 100, 44);
      send_text(caller, hello + std::string(20, 'x'));  // as long as an answer
    }
  });
  tcp_.spec.timeout = milliseconds(2000);
  EXPECT_THAT(error_of<RendezvousLostError>([&] { return tcp_.join()->find("key"); }),
              HasSubstr("who listens there does not know this job's secret"));
  done = true;
  impostor.join();
}

TEST_F(TcpRendezvous, TellsAtOnceWhenRankZeroGoes) {
  tcp_.spec.timeout = seconds(2);  // of which rank 0 waits a fifth for those that are still there
  auto server = tcp_.serve();
  const auto client = tcp_.join();
  client->set("key", "value");
  std::thread leaving([&] { server.reset(); });
  const auto start = Clock::now();
  EXPECT_THAT(error_of<RendezvousLostError>([&] { return client->wait("never", seconds(60)); }),
              AllOf(HasSubstr("rank 0"), HasSubstr("is gone")));
  leaving.join();
  EXPECT_THAT(error_of<RendezvousLostError>([&] { return client->find("key"); }), HasSubstr("is gone"));
  client->abort("nobody hears it");
  EXPECT_LT(Clock::now() - start, seconds(30));
}

TEST_F(TcpRendezvous, RankZeroStaysForThoseWhoStillRead) {
  auto server = tcp_.serve();
  server->set("key", "value");
  auto client = tcp_.join();
  EXPECT_TRUE(client->find("key"));
  std::atomic<bool> gone = false;
  std::thread leaving([&] {
    server.reset();
    gone = true;
  });
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(gone);
  EXPECT_EQ(client->find("key"), "value");
  const auto start = Clock::now();
  client.reset();
  leaving.join();
  EXPECT_LT(Clock::now() - start, seconds(8)) << "it stays for those who are there, not for the whole time";
}

TEST_F(TcpRendezvous, ManyThreadsOfARankAskAtOnce) {
  const auto server = tcp_.serve();
  const auto client = tcp_.join();
  const auto outcome = outcome_of_ranks(8, [&](int thread) {
    const std::string key = "key" + std::to_string(thread);
    if (thread % 2 == 1) {
      EXPECT_EQ(client->get("key" + std::to_string(thread - 1), seconds(30)), "value");
      client->set(key, "");
      return;
    }
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(client->find("nothing"));
    EXPECT_FALSE(client->wait("nothing", milliseconds(20)));
    client->set(key, "value");
    EXPECT_TRUE(server->wait("key" + std::to_string(thread + 1), seconds(30)));
  });
  EXPECT_THAT(outcome, testing::Each(testing::IsEmpty()));
}

TEST_F(TcpRendezvous, ObjectsDoNotPass) {
  const auto server = tcp_.serve();
  EXPECT_THROW(tcp_.join()->set_object("key", std::make_shared<int>()), InternalError);
  EXPECT_THROW(server->set_object("key", std::make_shared<int>()), InternalError);
}

TEST_F(TcpRendezvous, CarriesLargeValuesAndRefusesLongKeys) {
  const auto server = tcp_.serve();
  const auto client = tcp_.join();
  const std::string large(std::size_t{8} << 20, 'v');
  client->set("large", large);
  EXPECT_EQ(server->get("large", seconds(30)), large);
  EXPECT_EQ(tcp_.join()->get("large", seconds(30)), large);
  EXPECT_THAT(error_of<CommError>([&] { return client->find(std::string(5000, 'k')); }), HasSubstr("too long"));
  EXPECT_EQ(client->get("large", seconds(30)), large);
}

// Between a rank and rank 0: keeps what passes, and may change it.
class Wire {
 public:
  using Change = std::function<void(std::string& piece, bool from_caller, std::size_t offset)>;

  explicit Wire(int port, Change change = {}) : listener_(listen_on("127.0.0.1", 0)) {
    thread_ = std::thread([this, port, change] {
      while (!done_) {
        FileDescriptor caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (caller) {
          pass_on(caller, connect_to(port), change);
        } else {
          std::this_thread::sleep_for(milliseconds(1));
        }
      }
    });
  }
  ~Wire() {
    done_ = true;
    thread_.join();
  }
  int port() const { return port_of(listener_); }
  std::string seen() {
    std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void pass_on(const FileDescriptor& caller, const FileDescriptor& listener, const Change& change) {
    std::size_t offsets[2] = {0, 0};
    while (!done_) {
      pollfd events[2] = {{caller.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
      ::poll(events, 2, 10);
      for (const int side : {0, 1}) {
        if (events[side].revents == 0) continue;
        std::string piece(4096, '\0');
        const ssize_t count = ::recv(events[side].fd, piece.data(), piece.size(), 0);
        if (count <= 0) return;
        piece.resize(static_cast<std::size_t>(count));
        {
          std::lock_guard lock(mutex_);
          seen_ += piece;
        }
        if (change) change(piece, side == 0, offsets[side]);
        offsets[side] += piece.size();
        send_text(side == 0 ? listener : caller, piece);
      }
    }
  }

  const FileDescriptor listener_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::string seen_;
  std::thread thread_;
};

TEST_F(TcpRendezvous, NeitherTokenNorWordsAreReadableOnTheWire) {
  const auto server = tcp_.serve();
  Wire wire(tcp_.spec.port);
  tcp_.spec.port = wire.port();
  const auto client = tcp_.join();
  client->set("the-key", "the-value-that-is-secret");
  EXPECT_EQ(client->get("the-key", seconds(30)), "the-value-that-is-secret");
  const Digest& key = tcp_.spec.token.key();
  const std::string token(reinterpret_cast<const char*>(key.data()), key.size());
  EXPECT_GT(wire.seen().size(), 200u);
  EXPECT_THAT(wire.seen(), AllOf(Not(HasSubstr(token)), Not(HasSubstr("the-key")), Not(HasSubstr("the-value"))));
}

constexpr std::size_t proof_of_caller = 44 + 32, proof_of_listener = 32 + 32;

TEST_F(TcpRendezvous, AWordThatWasChangedOnItsWayIsNotTaken) {
  for (const bool from_caller : {true, false}) {
    TcpStore tcp;
    const auto server = tcp.serve();
    server->set("key", "value");
    // One bit of what follows the proof and the length of the first word.
    const std::size_t changed = (from_caller ? proof_of_caller : proof_of_listener) + 8 + 3;
    Wire wire(tcp.spec.port, [=](std::string& piece, bool caller, std::size_t offset) {
      if (caller == from_caller && offset <= changed && changed < offset + piece.size()) piece[changed - offset] ^= 1;
    });
    tcp.spec.port = wire.port();
    EXPECT_THROW(tcp.join()->find("key"), RendezvousLostError);
    EXPECT_EQ(server->get("key", milliseconds(0)), "value");
  }
}

TEST_F(TcpRendezvous, AWordThatIsTooLongTakesNoMemory) {
  const auto server = tcp_.serve();
  Wire wire(tcp_.spec.port, [](std::string& piece, bool caller, std::size_t offset) {
    // The high bytes of the length of the rank's first word.
    for (std::size_t i = 0; caller && i < piece.size(); ++i) {
      if (offset + i >= proof_of_caller + 3 && offset + i < proof_of_caller + 8) piece[i] = '\x7f';
    }
  });
  tcp_.spec.port = wire.port();
  EXPECT_THAT(error_of<RendezvousLostError>([&] { return tcp_.join()->find("key"); }), HasSubstr("is gone"));
  server->set("key", "value");
}

}  // namespace
}  // namespace plait::comm::test
