// Links of every transport and mover: every byte of every message, in threads and processes, and how they are chosen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/meeting.h"
#include "comm/p2p/link.h"
#include "comm/p2p/links.h"
#include "comm/p2p/mailbox.h"
#include "comm/p2p/trial.h"
#include "core/error.h"
#include "forwarding_link.h"
#include "gpu_ranks.h"
#include "message_exchange.h"
#include "rank_processes.h"
#include "rank_threads.h"

namespace plait::comm::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> exchange_in_threads(ExchangeSpec spec, DeviceKind kind,
                                             std::vector<p2p::LinkReport>* reports = nullptr) {
  const auto store = make_thread_rendezvous();
  if (reports) reports->resize(static_cast<std::size_t>(spec.size));
  return outcome_of_ranks(spec.size, [&](int rank) {
    ExchangeSpec mine = spec;
    mine.rank = rank;
    mine.device = {kind, rank};
    const std::string problems =
        exchange_messages(mine, *store, reports ? &(*reports)[static_cast<std::size_t>(rank)] : nullptr);
    if (!problems.empty()) throw Error(problems);
  });
}

// Every transport and mover that ranks of one process have, on the host.
struct Way {
  Transport transport;
  Mover mover = Mover::copy_engine;
  friend void PrintTo(const Way& way, std::ostream* out) { *out << to_string(way.transport) << "_" << to_string(way.mover); }
};

class P2pLinkThreads : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, P2pLinkThreads,
                         testing::Values(Way{Transport::direct}, Way{Transport::host}, Way{Transport::nccl}),
                         testing::PrintToStringParamName());

TEST_P(P2pLinkThreads, EveryByteArrives) {
  ExchangeSpec spec{.transport = GetParam().transport, .mover = GetParam().mover, .messages = 2000};
  EXPECT_THAT(exchange_in_threads(spec, DeviceKind::host), Each(IsEmpty()));
}

TEST_P(P2pLinkThreads, EveryByteArrivesInItsPlace) {
  ExchangeSpec spec{.transport = GetParam().transport, .mover = GetParam().mover, .messages = 2000, .in_place = true};
  EXPECT_THAT(exchange_in_threads(spec, DeviceKind::host), Each(IsEmpty()));
  spec.post_ahead = true;
  EXPECT_THAT(exchange_in_threads(spec, DeviceKind::host), Each(IsEmpty()));
}

TEST_P(P2pLinkThreads, LongMessagesTravelInChunks) {
  ExchangeSpec spec{.size = 3,
                    .transport = GetParam().transport,
                    .mover = GetParam().mover,
                    .messages = 300,
                    .largest = 60'000,
                    .slot_message = 1000};
  EXPECT_THAT(exchange_in_threads(spec, DeviceKind::host), Each(IsEmpty()));
}

// Neither gets to its receive before its stream holds the whole message, however many pieces that is cut into.
TEST(P2pLink, BothEndsMaySendALongMessageBeforeTheyReceive) {
  constexpr std::size_t bytes = std::size_t{160} << 20;  // of pieces of a megabyte, more than a stream holds
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    const Device device{DeviceKind::host, rank};
    Meeting meeting(*store, "long", rank, {0, 1}, std::chrono::seconds(20));
    p2p::HandleExchange exchange(meeting);
    Stream release(device), out_stream(device), in_stream(device);
    const auto mailbox = [&](int from) {
      const auto end = from == rank ? p2p::End::sender : p2p::End::receiver;
      const p2p::MailboxSpec spec{.name = "long" + std::to_string(from),
                                  .transport = Transport::host,
                                  .message_bytes = bytes,
                                  .device = device,
                                  .peer_device = {DeviceKind::host, 1 - rank},
                                  .bridge = {}};
      return std::make_unique<p2p::Mailbox>(end, make_mailbox_memory(end, spec, exchange), release.ref(), false);
    };
    const auto first = mailbox(0), second = mailbox(1);
    std::vector<std::byte> sent(bytes, std::byte(1 + rank)), received(bytes);
    const auto view = [&](std::vector<std::byte>& of) {
      return View(of.data(), DType::u8, {static_cast<std::int64_t>(bytes)});
    };
    const View out = view(sent), in = view(received);
    (rank == 0 ? first : second)->send(out_stream, {&out, 1});
    (rank == 0 ? second : first)->receive(in_stream, {&in, 1});
    in_stream.ref().synchronize();
    out_stream.ref().synchronize();
    if (received != std::vector<std::byte>(bytes, std::byte(2 - rank))) throw Error("it arrived wrong");
    meeting.meet("done");
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST(P2pLink, BetweenThreadsOfCpusTheBestIsDirect) {
  std::vector<p2p::LinkReport> reports;
  EXPECT_THAT(exchange_in_threads({.messages = 10}, DeviceKind::host, &reports), Each(IsEmpty()));
  for (const p2p::LinkReport& report : reports) {
    EXPECT_EQ(report.transport, Transport::direct);
    EXPECT_THAT(report.better, IsEmpty());
    EXPECT_GT(report.trial_microseconds, 0);
  }
}

TEST(P2pLink, SaysByWhichWayItsBytesGo) {
  struct Case {
    std::optional<Transport> transport;
    Carrier carrier;
    std::string via, by;
  };
  for (const Case& c : {Case{std::nullopt, Carrier::memory, "direct", "link"},
                        Case{Transport::host, Carrier::shm, "host", "link"}, Case{Transport::nccl, Carrier::net, "TCP", ""}}) {
    std::vector<p2p::LinkReport> reports;
    EXPECT_THAT(exchange_in_threads({.transport = c.transport, .messages = 2}, DeviceKind::host, &reports), Each(IsEmpty()));
    ASSERT_FALSE(reports.empty());
    for (const p2p::LinkReport& report : reports) {
      ASSERT_EQ(report.paths.pairs.size(), 1u) << c.via;
      const PairPath& path = report.paths.pairs[0];
      EXPECT_EQ(path.carrier, c.carrier) << c.via;
      EXPECT_EQ(path.via, c.via);
      EXPECT_TRUE((path.from == report.from && path.to == report.to) || (c.via == "TCP" && path.from == report.to))
          << path.from;
      EXPECT_TRUE(c.by.empty() || report.paths.by == c.by) << report.paths.by;
    }
  }
}

TEST(P2pLink, ATransportThatCannotWorkIsAnErrorThatSaysWhy) {
  const auto outcome = exchange_in_threads({.transport = Transport::ipc, .messages = 1}, DeviceKind::host);
  EXPECT_THAT(outcome, Each(AllOf(HasSubstr("comm.p2p=ipc cannot be used"), HasSubstr("GPU"))));
}

const plait::test::ChildProcess exchange_of_one_rank("P2pLinkExchange", [] {
  ProcessPlace place;
  const char* transport = std::getenv("PLAIT_TEST_TRANSPORT");
  const char* mover = std::getenv("PLAIT_TEST_MOVER");
  const bool gpu = std::getenv("PLAIT_TEST_GPU") != nullptr;
  ExchangeSpec spec{.rank = place.rank,
                    .size = place.size,
                    .device = {gpu ? DeviceKind::cuda : DeviceKind::host, place.rank},
                    .transport = named<Transport>(transport ? transport : "auto"),
                    .mover = named<Mover>(mover ? mover : "auto"),
                    .messages = 1000,
                    .largest = gpu ? std::size_t{3'000'000} : std::size_t{40'000},
                    .in_place = std::getenv("PLAIT_TEST_IN_PLACE") != nullptr};
  p2p::LinkReport report;
  EXPECT_EQ(exchange_messages(spec, *place.store, &report), "");
  std::cout << describe(report) << std::endl;
});

std::vector<Ended> exchange_in_processes(int size, const std::vector<std::string>& environment) {
  return run_processes(exchange_of_one_rank, size, environment);
}

class P2pLinkProcesses : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Ways, P2pLinkProcesses, testing::Values(Transport::host, Transport::nccl),
                         [](const auto& way) { return to_string(way.param); });

TEST_P(P2pLinkProcesses, EveryByteArrives) {
  for (const int size : {2, 3}) {
    for (const std::string in_place : {"PLAIT_TEST_NOTHING=1", "PLAIT_TEST_IN_PLACE=1"}) {
      for (const Ended& rank : exchange_in_processes(size, {"PLAIT_TEST_TRANSPORT=" + to_string(GetParam()), in_place})) {
        EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
      }
    }
  }
}

TEST(P2pLinkProcesses, BetweenProcessesOfCpusTheBestIsSharedMemoryAndItSaysWhyNotDirect) {
  for (const Ended& rank : exchange_in_processes(2, {})) {
    EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
    EXPECT_THAT(rank.output, AllOf(HasSubstr("host"), HasSubstr("not direct: ")));
  }
}

// A link that breaks what passes through it, as a machine with faulty peer access does.
class Corrupting final : public ForwardingLink {
 public:
  Corrupting(std::shared_ptr<p2p::Link> inner, std::size_t byte) : ForwardingLink(std::move(inner)), byte_(byte) {}
  void receive(StreamRef stream, View data, Event* announced, int place) override {
    inner_->receive(stream, data, announced, place);
    stream.enqueue_host([data, byte = byte_] {
      if (byte < data.bytes()) static_cast<std::uint8_t*>(data.data)[byte] ^= 0x10;
    });
  }

 private:
  std::size_t byte_;
};

TEST(P2pTrial, FindsOneWrongBit) {
  for (const std::size_t byte : {std::size_t{0}, std::size_t{4097}, std::size_t{9999}}) {
    const auto store = make_thread_rendezvous();
    const auto outcome = outcome_of_ranks(2, [&](int rank) {
      const Device device{DeviceKind::host, rank};
      Corrupting broken(p2p::make_link({.name = "l", .rank = rank, .device = device, .message_bytes = 10'000}, *store), byte);
      const auto end = rank == 0 ? p2p::End::sender : p2p::End::receiver;
      const auto result = synchronize_trial(broken, end, device, 10'000, 2, std::chrono::seconds(20));
      if (!result.problem.empty()) throw Error(result.problem);
    });
    EXPECT_EQ(outcome[0], "");
    EXPECT_THAT(outcome[1], AllOf(HasSubstr("byte " + std::to_string(byte)), HasSubstr("arrived wrong")));
  }
}

TEST(P2pLink, AnAbortEndsAWaitForAMessageThatNeverComes) {
  for (const Transport transport : {Transport::direct, Transport::host, Transport::nccl}) {
    const auto store = make_thread_rendezvous();
    const auto outcome = outcome_of_ranks(2, [&](int rank) {
      const Device device{DeviceKind::host, rank};
      const auto link =
          p2p::make_link({.name = "l", .rank = rank, .device = device, .message_bytes = 100, .transport = transport}, *store);
      std::vector<char> data(100);
      const View view(data.data(), DType::u8, {100});
      if (rank == 0) {
        store->get("waiting", std::chrono::seconds(20));
        return;
      }
      const Stream stream(device), compute(device);
      const NextOn reception(stream);
      link->receive(stream, view);
      Event arrived(device);
      stream.ref().record(arrived);
      compute.ref().wait(arrived);
      bool computed = false;  // with what the sender may be writing yet
      compute.ref().enqueue_host([&] { computed = true; });
      reception.wait_until_reached();
      store->set("waiting", "");
      link->abort();
      EXPECT_THROW(stream.ref().synchronize(), CommError);
      EXPECT_THROW(compute.ref().synchronize(), CommError);
      EXPECT_FALSE(computed);
      EXPECT_THROW(link->receive(stream, view), CommError);
    });
    EXPECT_THAT(outcome, Each(IsEmpty())) << to_string(transport);
  }
}

// Announcements tell a late sender from a slow wire.
TEST(P2pLink, TheReceiverLearnsWhenTheMessageWasReady) {
  for (const Transport transport : {Transport::direct, Transport::host, Transport::nccl}) {
    const auto store = make_thread_rendezvous();
    const auto outcome = outcome_of_ranks(2, [&](int rank) {
      const Device device{DeviceKind::host, rank};
      const auto link =
          p2p::make_link({.name = "l", .rank = rank, .device = device, .message_bytes = 100, .transport = transport}, *store);
      std::vector<char> data(100);
      const View view(data.data(), DType::u8, {100});
      const Stream stream(device);
      const StreamRef s = stream;
      Event begin(device, EventTiming::on), announced(device, EventTiming::on), arrived(device, EventTiming::on);
      Meeting meeting(*store, "test", rank, 2, std::chrono::seconds(20));
      if (rank == 0) {
        meeting.meet("begun");
        s.enqueue_host([] { std::this_thread::sleep_for(std::chrono::milliseconds(150)); });
        link->send(s, view);
        s.synchronize();
      } else {
        s.record(begin);
        s.synchronize();
        meeting.meet("begun");
        link->receive(s, view, &announced);
        s.record(arrived);
        s.synchronize();
        EXPECT_TRUE(link->announces());
        EXPECT_GE(elapsed_ms(begin, announced), 149);
        EXPECT_GE(elapsed_ms(announced, arrived), 0);
      }
    });
    EXPECT_THAT(outcome, Each(IsEmpty())) << to_string(transport);
  }
}

// A rank of many links whose peers are gone does not wait for one after the other.
TEST(P2pLink, LinksThatShareLeaveWithinOneTime) {
  using std::chrono::milliseconds;
  const milliseconds whole(40), pause(5);
  const Device device{};
  const auto shared = std::make_shared<p2p::SharedByLinks>(device, whole);
  std::byte slot[64];
  std::uint32_t announced = 0, ready = 0, credit = 0, signalled = 0;
  std::vector<milliseconds> times;  // that each link had when it went
  const auto make = [&] {
    p2p::MailboxMemory memory{.slots = slot,
                              .slot_bytes = sizeof(slot),
                              .slot_count = 1,
                              .announced = &announced,
                              .ready = &ready,
                              .credit = &credit,
                              .signalled = &signalled,
                              .imported = {},
                              .exported = {}};
    const auto record = [&](milliseconds time) { times.push_back(time); };
    return p2p::make_mailbox_link({p2p::End::sender, device, "link", shared}, std::move(memory), {.goodbye = record});
  };
  for (int tried = 0; tried < 2; ++tried) {
    make().reset();  // at start-up, for another one
    std::this_thread::sleep_for(pause);
  }
  EXPECT_THAT(times, Each(whole)) << "what was only tried starts no clock";
  shared->begin_to_go();
  std::this_thread::sleep_for(pause);
  make().reset();
  EXPECT_LE(times.back(), whole - pause);
  std::this_thread::sleep_for(whole);
  make().reset();
  EXPECT_EQ(times.back(), milliseconds(0));
}

TEST(P2pMailbox, PartsThatLeaveTogetherTravelAsOneMessage) {
  const Device device{};
  std::vector<std::byte> slots(2 * 256);
  std::uint32_t announced = 0, ready = 0, credit = 0, signalled = 0;
  const p2p::MailboxMemory memory{.slots = slots.data(),
                                  .slot_bytes = 256,
                                  .slot_count = 2,
                                  .announced = &announced,
                                  .ready = &ready,
                                  .credit = &credit,
                                  .signalled = &signalled,
                                  .imported = {},
                                  .exported = {}};
  const Stream out(device), in(device);
  p2p::Mailbox sender(p2p::End::sender, memory, out, false), receiver(p2p::End::receiver, memory, in, false);
  std::vector<std::int32_t> a(10, 1), b(50, 2), c(1, 3), x(10), y(50), z(1);
  const auto view = [](std::vector<std::int32_t>& v) { return View(v.data(), DType::i32, {std::ssize(v)}); };
  const std::vector<View> parts = {view(a), view(b), view(c)}, places = {view(x), view(y), view(z)};
  for (int n = 0; n < 5; ++n) {
    a[0] = n;
    sender.send(out, parts);
    receiver.receive(in, places);
    out.ref().synchronize();
    in.ref().synchronize();
    EXPECT_EQ(std::tie(a, b, c), std::tie(x, y, z));
    EXPECT_EQ(ready, static_cast<std::uint32_t>(n + 1)) << "244 bytes fit one slot";
  }
}

// Counters go once around the circle of 2^32 in a run of some months.
TEST(P2pMailbox, CountersMayGoAroundTheCircle) {
  const Stream stream(Device{});
  std::uint32_t counter = 0xfffffffe;
  stream.ref().write_value(&counter, 1);
  stream.ref().wait_value(&counter, 0xffffffff);
  stream.ref().synchronize();
  EXPECT_EQ(counter, 1u);
}

// GPUs.

std::string way_and_size(const testing::TestParamInfo<std::tuple<Way, int>>& way) {
  return testing::PrintToString(std::get<0>(way.param)) + "_" + std::to_string(std::get<1>(way.param));
}

// By way and number of GPUs; a relay needs one more than the two that it is between.
class GpuP2pWay : public testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  void SetUp() override {
    const bool relay = std::get<0>(GetParam()).transport == Transport::relay;
    skip_below(std::max(std::get<1>(GetParam()), relay ? 3 : 0));
  }
};

class GpuP2pLink : public GpuP2pWay {};
INSTANTIATE_TEST_SUITE_P(Ways, GpuP2pLink,
                         testing::Combine(testing::Values(Way{Transport::direct, Mover::copy_engine},
                                                          Way{Transport::direct, Mover::sm_write},
                                                          Way{Transport::direct, Mover::sm_read}, Way{Transport::host},
                                                          Way{Transport::relay}, Way{Transport::nccl}),
                                          testing::Values(2, 4)),
                         way_and_size);

TEST_P(GpuP2pLink, EveryByteArrivesBetweenThreads) {
  const auto& [way, size] = GetParam();
  ExchangeSpec spec{.size = size, .transport = way.transport, .mover = way.mover, .messages = 2000, .largest = 3'000'000};
  EXPECT_THAT(exchange_in_threads(spec, DeviceKind::cuda), Each(IsEmpty()));
  spec.in_place = true;
  EXPECT_THAT(exchange_in_threads(spec, DeviceKind::cuda), Each(IsEmpty()));
  spec.post_ahead = true;
  EXPECT_THAT(exchange_in_threads(spec, DeviceKind::cuda), Each(IsEmpty()));
  spec.post_ahead = spec.in_place = false, spec.messages = 200, spec.slot_message = 100'000;
  EXPECT_THAT(exchange_in_threads(spec, DeviceKind::cuda), Each(IsEmpty()));
}

class GpuP2pLinkProcesses : public GpuP2pWay {};
INSTANTIATE_TEST_SUITE_P(
    Ways, GpuP2pLinkProcesses,
    testing::Combine(testing::Values(Way{Transport::vmm, Mover::copy_engine}, Way{Transport::vmm, Mover::sm_write},
                                     Way{Transport::vmm, Mover::sm_read}, Way{Transport::ipc, Mover::copy_engine},
                                     Way{Transport::ipc, Mover::sm_write}, Way{Transport::ipc, Mover::sm_read},
                                     Way{Transport::host}, Way{Transport::relay}, Way{Transport::nccl}),
                     testing::Values(2, 4)),
    way_and_size);

TEST_P(GpuP2pLinkProcesses, EveryByteArrives) {
  const auto& [way, size] = GetParam();
  std::vector<std::string> environment = {"PLAIT_TEST_GPU=1", "PLAIT_TEST_TRANSPORT=" + to_string(way.transport),
                                          "PLAIT_TEST_MOVER=" + to_string(way.mover)};
  for (const bool in_place : {false, true}) {
    if (in_place) environment.push_back("PLAIT_TEST_IN_PLACE=1");
    for (const Ended& rank : exchange_in_processes(size, environment)) {
      EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
    }
  }
}

class GpuP2pAbort : public TwoGpuRanks {};

TEST_F(GpuP2pAbort, EndsAWaitForAMessageThatNeverComes) {
  for (const Transport transport : {Transport::direct, Transport::host, Transport::nccl}) {
    const auto store = make_thread_rendezvous();
    const auto outcome = outcome_of_ranks(2, [&](int rank) {
      const Device device{DeviceKind::cuda, rank};
      make_current(device);
      const auto link =
          p2p::make_link({.name = "l", .rank = rank, .device = device, .message_bytes = 100, .transport = transport}, *store);
      DeviceMemory memory(device);
      const Buffer data = memory.allocate(100);
      if (rank == 0) {
        store->get("waiting", std::chrono::seconds(20));
        link->abort();
        return;
      }
      const Stream stream(device);
      const NextOn reception(stream);
      link->receive(stream, {data.data(), DType::u8, {100}});
      reception.wait_until_reached();
      store->set("waiting", "");
      link->abort();
      stream.ref().synchronize();
    });
    EXPECT_THAT(outcome, Each(IsEmpty())) << to_string(transport);
  }
}

}  // namespace
}  // namespace plait::comm::test
