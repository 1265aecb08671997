#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "comm/p2p/handle_exchange.h"
#include "core/error.h"
#include "core/error_of.h"
#include "descriptor_count.h"
#include "rank_processes.h"
#include "rank_threads.h"

namespace plait::comm::p2p {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::outcome_of_ranks;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

FileDescriptor file_with(const std::string& text) {
  FileDescriptor file(::memfd_create("exchange-test", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}

std::string text_in(const FileDescriptor& file) {
  std::string text(256, '\0');
  const ssize_t length = ::pread(file.get(), text.data(), text.size(), 0);
  EXPECT_GE(length, 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return text;
}

// Rank 0 gives and rank 1 takes.
Meeting pair_meeting(Rendezvous& store, int rank, milliseconds timeout) { return {store, "pair", rank, 2, timeout}; }
std::string given_key(const std::string& name) { return "pair/" + name + "/0"; }

// What a giver published, as somebody who is no HandleExchange reads it.
struct Published {
  explicit Published(const std::string& text) : socket(Json::parse(text).at("socket")), token(Json::parse(text).at("token")) {}
  std::string socket, token;
};

std::string invitation(const std::string& socket, const std::string& token) {
  return Json{{"socket", socket}, {"token", token}}.dump();
}

struct Address {
  explicit Address(const std::string& socket) {
    const std::string path = std::string(1, '\0') + "plait-" + socket;
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t length = 0;
};

FileDescriptor connected_to(const std::string& socket) {
  FileDescriptor connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address(socket);
  EXPECT_EQ(::connect(connection.get(), address.get(), address.length), 0) << std::strerror(errno);
  return connection;
}

// Whether the other side closes the connection without a word.
bool is_dropped(const FileDescriptor& connection) {
  pollfd event{connection.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&event, 1, 10'000) == 1 && ::recv(connection.get(), &byte, 1, 0) <= 0;
}

class P2pExchange : public test::NothingLeftBehind {
 protected:
  std::shared_ptr<Rendezvous> store = make_thread_rendezvous();
};

TEST_F(P2pExchange, ADescriptorCrossesBetweenThreads) {
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting = pair_meeting(*store, rank, seconds(30));
    HandleExchange exchange(meeting);
    for (int i = 0; i < 20; ++i) {
      const std::string name = "file" + std::to_string(i);
      if (rank == 0) {
        const FileDescriptor file = file_with(name);
        exchange.give_descriptor(name, file.get());
        EXPECT_EQ(text_in(file), name) << "the giver keeps its own";
      } else {
        const FileDescriptor file = exchange.take_descriptor(name);
        EXPECT_EQ(text_in(file), name);
        EXPECT_NE(::fcntl(file.get(), F_GETFD) & FD_CLOEXEC, 0) << "programs that this one starts would inherit it";
      }
    }
  });
  EXPECT_THAT(outcome, ElementsAre("", ""));
}

TEST_F(P2pExchange, ObjectsCrossBetweenThreads) {
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting = pair_meeting(*store, std::min(rank, 1), seconds(30));
    HandleExchange exchange(meeting);
    if (rank == 0) return exchange.give_object("number", std::make_shared<int>(42));
    EXPECT_EQ(*std::static_pointer_cast<int>(exchange.take_object("number")), 42);
  });
  EXPECT_THAT(outcome, ElementsAre("", ""));
}

const plait::test::ChildProcess crosses_child("P2pExchangeCrosses", [] {
  test::ProcessPlace place;
  Meeting meeting = pair_meeting(*place.store, place.rank, seconds(30));
  HandleExchange exchange(meeting);
  const std::size_t descriptors = test::open_descriptors();
  for (int i = 0; i < 20; ++i) {
    const std::string name = "file" + std::to_string(i);
    if (place.rank == 0) {
      exchange.give_descriptor(name, file_with("content of " + name).get());
    } else {
      EXPECT_EQ(text_in(exchange.take_descriptor(name)), "content of " + name);
    }
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
  EXPECT_THROW(exchange.give_object("object", std::make_shared<int>(1)), InternalError)
      << "it would be a pointer to nothing there";
});

TEST_F(P2pExchange, ADescriptorCrossesBetweenProcesses) {
  for (const test::Ended& rank : test::run_processes(crosses_child, 2)) {
    EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
  }
}

TEST_F(P2pExchange, StrangersAreDroppedAndThePeerIsServed) {
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    Meeting meeting = pair_meeting(*store, std::min(rank, 1), seconds(30));
    HandleExchange exchange(meeting);
    if (rank == 0) return exchange.give_descriptor("file", file_with("for the peer only").get());
    if (rank == 1) {
      store->get("strangers came", seconds(30));
      EXPECT_EQ(text_in(exchange.take_descriptor("file")), "for the peer only");
      store->set("peer served", "");
      return;
    }
    const Published published(store->get(given_key("file"), seconds(30)));
    const FileDescriptor silent = connected_to(published.socket);
    std::vector<std::string> wrong = {"", "x", published.token.substr(1), published.token + "0", published.socket};
    std::string almost = published.token;
    almost.back() = almost.back() == '0' ? '1' : '0';
    wrong.push_back(almost);
    for (const std::string& token : wrong) {
      const FileDescriptor stranger = connected_to(published.socket);
      EXPECT_EQ(::send(stranger.get(), token.data(), token.size(), MSG_NOSIGNAL), static_cast<ssize_t>(token.size()));
      EXPECT_TRUE(is_dropped(stranger)) << "said '" << token << "'";
    }
    for (int i = 0; i < 40; ++i) connected_to(published.socket);  // come and go
    store->set("strangers came", "");
    store->get("peer served", seconds(30));
    EXPECT_TRUE(is_dropped(silent));
  });
  EXPECT_THAT(outcome, ElementsAre("", "", ""));
}

TEST_F(P2pExchange, EachSideSaysWhomItWaitedForAndHowLong) {
  Meeting meeting = pair_meeting(*store, 0, milliseconds(150));
  HandleExchange exchange(meeting);
  const FileDescriptor file = file_with("");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of<CommError>([&] { exchange.give_descriptor("never taken", file.get()); }),
              AllOf(HasSubstr("'never taken'"), HasSubstr("150 ms"), HasSubstr("did not come")));
  Meeting takers = pair_meeting(*store, 1, milliseconds(150));
  EXPECT_THAT(error_of<CommError>([&] { HandleExchange(takers).take_descriptor("never given"); }),
              AllOf(HasSubstr("'pair/never given/0'"), HasSubstr("150 ms")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
}

std::set<int> sockets_of_this_process() {
  std::set<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // what the listing itself used
    if (std::filesystem::read_symlink(entry, gone).string().starts_with("socket:"))
      sockets.insert(std::stoi(entry.path().filename()));
  }
  return sockets;
}

TEST_F(P2pExchange, ProgramsStartedMeanwhileInheritNoSocket) {
  const std::set<int> before = sockets_of_this_process();
  const FileDescriptor file = file_with("");
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting = pair_meeting(*store, std::min(rank, 1), seconds(30));
    HandleExchange exchange(meeting);
    if (rank == 0) return exchange.give_descriptor("file", file.get());
    store->get(given_key("file"), seconds(30));
    int found = 0;
    for (const int socket : sockets_of_this_process()) {
      if (before.contains(socket)) continue;
      ++found;
      EXPECT_NE(::fcntl(socket, F_GETFD) & FD_CLOEXEC, 0);
    }
    EXPECT_EQ(found, 1) << "the giver's";
    exchange.take_descriptor("file");
  });
  EXPECT_THAT(outcome, ElementsAre("", ""));
}

TEST_F(P2pExchange, AnAbortedRendezvousEndsTheWait) {
  Meeting meeting = pair_meeting(*store, 0, seconds(60));
  HandleExchange exchange(meeting);
  const FileDescriptor file = file_with("");
  std::thread aborter([&] {
    store->get(given_key("file"), seconds(30));
    store->abort("rank 7 failed");
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of<CommError>([&] { exchange.give_descriptor("file", file.get()); }), HasSubstr("rank 7 failed"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20)) << "the time limit is 60 s";
  aborter.join();
}

TEST_F(P2pExchange, ATakerThatGoesAwayIsAnErrorOfTheGiver) {
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting = pair_meeting(*store, std::min(rank, 1), seconds(30));
    HandleExchange exchange(meeting);
    if (rank == 0) return exchange.give_descriptor("file", file_with("x").get());
    const Published published(store->get(given_key("file"), seconds(30)));
    const FileDescriptor connection = connected_to(published.socket);
    EXPECT_EQ(::send(connection.get(), published.token.data(), published.token.size(), MSG_NOSIGNAL), 32);
  });
  EXPECT_THAT(outcome[0], HasSubstr("did not take"));
}

TEST_F(P2pExchange, AGiverThatIsGoneIsAnError) {
  store->set(given_key("file"), invitation(std::string(32, 'a'), std::string(32, 'b')));
  Meeting meeting = pair_meeting(*store, 1, seconds(30));
  HandleExchange exchange(meeting);
  EXPECT_THAT(error_of<CommError>([&] { exchange.take_descriptor("file"); }),
              AllOf(HasSubstr("'file'"), HasSubstr("network namespaces")));
}

TEST_F(P2pExchange, OnlyInvitationsAreAccepted) {
  const std::string a(32, 'a'), b(32, 'b');
  const std::vector<std::string> malformed = {"",
                                              "null",
                                              a,
                                              Json(a + b).dump(),
                                              Json{{"socket", a}}.dump(),
                                              Json{{"socket", a}, {"token", 7}}.dump(),
                                              Json{{"socket", a}, {"token", b}, {"more", b}}.dump(),
                                              invitation(a, b.substr(1)),
                                              invitation(a, b + "c"),
                                              invitation(std::string(32, 'A'), b),
                                              invitation(std::string(32, 'g'), b)};
  Meeting meeting = pair_meeting(*store, 1, seconds(30));
  HandleExchange exchange(meeting);
  for (std::size_t i = 0; i < malformed.size(); ++i) {
    const std::string name = "malformed" + std::to_string(i);
    store->set(given_key(name), malformed[i]);
    EXPECT_THAT(error_of<CommError>([&] { exchange.take_descriptor(name); }),
                AllOf(HasSubstr("rank 0 sent something unusable for"), HasSubstr("'" + given_key(name) + "'")))
        << malformed[i];
  }
}

// Somebody in the giver's place who knows the protocol, and sends `count` descriptors with `bytes`.
std::string taken_from_giver_that_sends(Rendezvous& store, int count, const std::string& bytes) {
  const std::string socket = "0123456789abcdef0123456789abcdef";
  FileDescriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address(socket);
  EXPECT_EQ(::bind(listener.get(), address.get(), address.length), 0) << std::strerror(errno);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  const std::string name = "hostile " + std::to_string(count) + bytes;
  store.set(given_key(name), invitation(socket, socket));
  std::thread giver([&] {
    const FileDescriptor taker(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char token[64];
    EXPECT_EQ(::recv(taker.get(), token, sizeof token, 0), 32);
    if (bytes.empty()) return;
    const FileDescriptor file = file_with("x");
    const std::vector<int> files(static_cast<std::size_t>(count), file.get());
    std::vector<char> control(CMSG_SPACE(files.size() * sizeof(int)));
    std::string data = bytes;
    iovec part{data.data(), data.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (count > 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
    }
    EXPECT_EQ(::sendmsg(taker.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  });
  Meeting meeting = pair_meeting(store, 1, seconds(30));
  HandleExchange exchange(meeting);
  const std::string message = error_of<CommError>([&] { exchange.take_descriptor(name); });
  giver.join();
  return message;
}

TEST_F(P2pExchange, AnythingButOneDescriptorIsRefusedAndClosed) {
  EXPECT_EQ(taken_from_giver_that_sends(*store, 1, "d"), nothing_thrown) << "this giver does it as HandleExchange does";
  EXPECT_THAT(taken_from_giver_that_sends(*store, 0, "d"), HasSubstr("0 file descriptors instead of one"));
  EXPECT_THAT(taken_from_giver_that_sends(*store, 2, "d"), HasSubstr("2 file descriptors instead of one"));
  EXPECT_THAT(taken_from_giver_that_sends(*store, 100, "d"), HasSubstr("descriptors were lost"));
  EXPECT_THAT(taken_from_giver_that_sends(*store, 1, "x"), HasSubstr("not plait's"));
  EXPECT_THAT(taken_from_giver_that_sends(*store, 1, "dd"), HasSubstr("not plait's"));
  EXPECT_THAT(taken_from_giver_that_sends(*store, 0, ""), HasSubstr("closed the connection"));
}

TEST_F(P2pExchange, NoSocketIsLeftBehind) {
  Meeting meeting = pair_meeting(*store, 0, milliseconds(50));
  HandleExchange exchange(meeting);
  const FileDescriptor file = file_with("");
  EXPECT_THROW(exchange.give_descriptor("file", file.get()), CommError);
  EXPECT_EQ(test::lines_with("/proc/net/unix", Published(store->get(given_key("file"), seconds(1))).socket), 0);
}

TEST(P2pFileDescriptor, HasOneOwner) {
  const std::size_t before = test::open_descriptors();
  {
    FileDescriptor first = file_with("a"), second = file_with("b");
    EXPECT_EQ(test::open_descriptors(), before + 2);
    FileDescriptor moved = std::move(first);
    EXPECT_EQ(first.get(), -1);
    moved = std::move(second);
    EXPECT_EQ(text_in(moved), "b");
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

}  // namespace
}  // namespace plait::comm::p2p
