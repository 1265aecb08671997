// What `plait bench p2p` measures, between CPU ranks; and between GPUs where there are two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "bench/bench_links.h"
#include "bench/p2p_benchmark.h"
#include "core/error.h"
#include "core/error_of.h"

namespace plait::bench::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

P2pBenchmarkRequest small_request() {
  P2pBenchmarkRequest request;
  request.ranks.device = "cpu";
  request.sizes = {.sizes = {"1K", "64K"}};
  request.rounds = 2;
  request.product_dim = 64;
  return request;
}

struct P2pOutcome {
  Json result;
  std::vector<std::string> notes;
  int status = -1;
};

P2pOutcome run(const P2pBenchmarkRequest& request) {
  P2pOutcome r;
  r.status = benchmark_p2p(request, {.result = [&](const Json& json) { r.result = json; },
                                     .note = [&](const std::string& text) { r.notes.push_back(text); }});
  return r;
}

std::string failure(const P2pBenchmarkRequest& request) {
  return error_of<CommError>([&] { return run(request); });
}

const Json& method_of(const Json& pair, const std::string& transport) {
  for (const Json& m : pair["methods"]) {
    if (m["transport"] == transport) return m;
  }
  throw std::runtime_error("no " + transport);
}

TEST(BenchP2p, MeasuresEveryPairBySizeAndMethod) {
  P2pBenchmarkRequest request = small_request();
  request.ranks.ranks = 3;
  const P2pOutcome r = run(request);
  ASSERT_EQ(r.status, 0);
  ASSERT_EQ(r.result["pairs"].size(), 6u);
  for (const Json& pair : r.result["pairs"]) {
    for (const char* transport : {"direct", "host", "nccl"}) {
      const Json& m = method_of(pair, transport);
      EXPECT_TRUE(m["available"].get<bool>()) << m.dump();
      ASSERT_EQ(m["results"].size(), 2u) << transport;
      for (const Json& result : m["results"]) {
        for (const char* key : {"microseconds", "gb_per_s", "both_ways_gb_per_s", "latency_microseconds", "vs_nccl"}) {
          EXPECT_GT(result[key].get<double>(), 0) << transport << " " << key;
        }
        const double bytes = result["bytes"].get<double>(), us = result["microseconds"].get<double>();
        EXPECT_NEAR(result["gb_per_s"].get<double>(), bytes / us / 1e3, 1e-6 * bytes / us);
        EXPECT_LE(result["microseconds_min"], result["microseconds"]);
        EXPECT_GE(result["microseconds_max"], result["microseconds"]);
      }
    }
    EXPECT_DOUBLE_EQ(method_of(pair, "nccl")["results"][0]["vs_nccl"].get<double>(), 1);
    for (const char* transport : {"ipc", "vmm", "relay"}) {
      EXPECT_FALSE(method_of(pair, transport)["available"].get<bool>());
      EXPECT_NE(method_of(pair, transport)["reason"], "");
    }
    EXPECT_FALSE(pair.contains("plain_copy"));
  }
}

TEST(BenchP2p, OfTheFirstTransportThatIsPossibleNothingElseIsMeasured) {
  P2pBenchmarkRequest request = small_request();
  request.products = false;
  request.filter.first_transport = true;
  const auto transports = [&] {
    const P2pOutcome r = run(request);
    std::vector<std::string> names;
    for (const Json& m : r.result["pairs"][0]["methods"]) names.push_back(m["transport"].get<std::string>());
    return names;
  };
  EXPECT_THAT(transports(), ElementsAre("direct"));
  request.filter.without_peer_access = true;
  EXPECT_THAT(transports(), ElementsAre("host"));
}

TEST(BenchP2p, MeasuresProductsBesideTheSameMessagesByEveryMethod) {
  P2pBenchmarkRequest request = small_request();
  request.pairs = {{0, 1}};
  const P2pOutcome r = run(request);
  ASSERT_EQ(r.result["pairs"].size(), 1u);
  const Json& products = r.result["pairs"][0]["products"];
  EXPECT_EQ(products["dim"], 64);
  EXPECT_EQ(products["dtype"], "f32");
  ASSERT_EQ(products["beside"].size(), 3u);  // of 64 KB; messages of 256 KB were not asked for
  int most = 0, equal_loads = 0;
  for (const Json& row : products["beside"]) most = std::max(most, row["messages"].get<int>());
  for (const Json& row : products["beside"]) {
    EXPECT_EQ(row["message_bytes"], 65536);
    EXPECT_GE(row["messages"], 2);
    EXPECT_DOUBLE_EQ(row["messages_per_product"].get<double>(), row["messages"].get<double>() / 40);
    // How many come in time is the scheduler's here; that they did come is known, or the bench would have ended.
    EXPECT_GE(row["message_gb_per_s"].get<double>(), 0);
    EXPECT_GE(row["arrived"].get<double>(), 0);
    EXPECT_LE(row["arrived"].get<double>(), 1);
    equal_loads += row["equal_load"].get<bool>();
    EXPECT_EQ(row["equal_load"].get<bool>(), row["messages"].get<int>() == most);
    for (const std::string end : {"from", "to"}) {
      EXPECT_GT(row[end + "_tflops"].get<double>(), 0);
      EXPECT_GT(row["alone_tflops"][end].get<double>(), 0);
      EXPECT_GE(row["noise"][end].get<double>(), 0);
      EXPECT_LE(row[end + "_slowdown_min"], row[end + "_slowdown"]);
      EXPECT_GE(row[end + "_slowdown_max"], row[end + "_slowdown"]);
      EXPECT_LT(row[end + "_slowdown_max"].get<double>(), 1);
    }
  }
  EXPECT_GE(equal_loads, 1);
}

TEST(BenchP2p, AProductIsHeldAgainstThoseAloneOfTheSameRound) {
  P2pBenchmarkRequest request = small_request();
  request.pairs = {{0, 1}};
  request.rounds = 1;
  // With one round every median is of one run.
  const P2pOutcome r = run(request);
  for (const Json& row : r.result["pairs"][0]["products"]["beside"]) {
    for (const std::string end : {"from", "to"}) {
      const double rate = row[end + "_tflops"].get<double>(), alone = row["alone_tflops"][end].get<double>();
      EXPECT_NEAR(row[end + "_slowdown"].get<double>(), 1 - rate / alone, 1e-9);
    }
  }
}

TEST(BenchP2p, OneWrongBitEndsTheBench) {
  // Messages are numbered per link, those of the link's trial are not seen.
  for (const std::size_t at : {std::size_t{0}, std::size_t{1023}, std::size_t{40'000}, std::size_t{65'535}}) {
    P2pBenchmarkRequest request = small_request();
    FaultyLink::Fault fault;
    // Of every message, since only the last of each loop are compared.
    fault.after_receive = [at](std::int64_t, View data) {
      if (at < data.bytes()) static_cast<std::byte*>(data.data)[at] ^= std::byte{16};
    };
    request.make_link = faulty_links(Transport::direct, 0, fault);
    EXPECT_THAT(failure(request), AllOf(HasSubstr("0 -> 1 by direct.copy_engine"), HasSubstr("rank 1 received wrong data"),
                                        HasSubstr("byte " + std::to_string(at) + " of message")));
  }
}

TEST(BenchP2p, AMessageThatNeverComesEndsTheBench) {
  P2pBenchmarkRequest request = small_request();
  request.ranks.timeout = std::chrono::milliseconds(300);
  FaultyLink::Fault fault;
  fault.sends = [](std::int64_t number) { return number < 40; };
  request.make_link = faulty_links(Transport::host, 1, fault);
  EXPECT_THAT(failure(request),
              AllOf(HasSubstr("by host.copy_engine"), AnyOf(HasSubstr("not done after 300 ms"), HasSubstr("wrong data"))));
}

TEST(BenchP2p, AMessageThatNeverComesBesideProductsEndsTheBench) {
  P2pBenchmarkRequest request = small_request();
  request.ranks.timeout = std::chrono::milliseconds(300);
  request.rounds = 1;
  request.sizes = {.sizes = {"64K"}};
  request.pairs = {{0, 1}};
  // One way 72 messages, both ways as many, 22 in turns; then one to meet for products alone.
  FaultyLink::Fault fault;
  fault.sends = [](std::int64_t number) { return number < 72 + 72 + 22; };
  request.make_link = faulty_links(Transport::nccl, 0, fault);
  request.filter.transports = {"nccl"};
  // The bench waits as long for the loop as the library for each message: which gives up first is a matter of clocks.
  EXPECT_THAT(failure(request), AnyOf(AllOf(HasSubstr("by nccl"), HasSubstr("not done after 300 ms")),
                                      AllOf(HasSubstr("/nccl/65536/0-1"), HasSubstr("no answer from rank 0 for 300 ms"))));
}

TEST(BenchP2p, AWrongMessageBesideProductsEndsTheBench) {
  P2pBenchmarkRequest request = small_request();
  request.rounds = 1;
  request.sizes = {.sizes = {"64K"}};
  request.pairs = {{0, 1}};
  request.filter.transports = {"nccl"};
  // As above; then one to meet, 8 and 8 twice to tell how many to offer, and one to meet: what is wrong is beside products.
  FaultyLink::Fault fault;
  fault.after_receive = [](std::int64_t number, View data) {
    if (number >= 72 + 72 + 22 + 1 + 32 + 1) static_cast<std::byte*>(data.data)[777] ^= std::byte{1};
  };
  request.make_link = faulty_links(Transport::nccl, 0, fault);
  EXPECT_THAT(failure(request), AllOf(HasSubstr("by nccl"), HasSubstr("rank 1 received wrong data: byte 777")));
}

TEST(BenchP2p, ALinkThatCannotBeMadeIsSaidToBe) {
  P2pBenchmarkRequest request = small_request();
  request.products = false;
  request.make_link = [](const comm::p2p::LinkSpec& spec, comm::Rendezvous& store) {
    if (spec.transport == Transport::direct) throw CommError("the sky is too low");
    return comm::p2p::make_link(spec, store);
  };
  const P2pOutcome r = run(request);
  EXPECT_EQ(r.status, 0);
  const Json& pair = r.result["pairs"][0];
  EXPECT_FALSE(method_of(pair, "direct")["available"].get<bool>());
  EXPECT_EQ(method_of(pair, "direct")["reason"], "the sky is too low");
  EXPECT_TRUE(method_of(pair, "host")["available"].get<bool>());
}

TEST(BenchP2p, ShortMessagesHaveLinksMadeForThem) {
  P2pBenchmarkRequest request = small_request();
  request.products = false;
  request.rounds = 1;
  request.pairs = {{0, 1}};
  request.filter.transports = {"direct", "nccl"};
  request.sizes = {.sizes = {"1K", "64K", "65K", "1M", "2M"}};
  // What comes over a link, by what the link was made for.
  std::mutex mutex;
  std::map<std::pair<Transport, std::size_t>, std::set<std::size_t>> seen;
  request.make_link = [&](const comm::p2p::LinkSpec& spec, comm::Rendezvous& store) -> std::unique_ptr<comm::p2p::Link> {
    FaultyLink::Fault none;
    none.after_receive = [&, key = std::pair(*spec.transport, spec.message_bytes)](std::int64_t, View data) {
      std::lock_guard lock(mutex);
      seen[key].insert(data.bytes());
    };
    return std::make_unique<FaultyLink>(comm::p2p::make_link(spec, store), none);
  };
  EXPECT_EQ(run(request).status, 0);
  constexpr std::size_t kilo = 1024, mega = kilo * kilo;
  using Sizes = std::set<std::size_t>;
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ((seen[{Transport::direct, 64 * kilo}]), (Sizes{kilo, 64 * kilo}));
  EXPECT_EQ((seen[{Transport::direct, mega}]), (Sizes{65 * kilo, mega}));
  EXPECT_EQ((seen[{Transport::direct, 2 * mega}]), (Sizes{2 * mega}));
  EXPECT_EQ((seen[{Transport::nccl, 2 * mega}]), (Sizes{kilo, 64 * kilo, 65 * kilo, mega, 2 * mega}));
}

TEST(BenchP2p, RefusesWhatItCannotDo) {
  const auto refused = [](const std::function<void(P2pBenchmarkRequest&)>& change) {
    P2pBenchmarkRequest request = small_request();
    change(request);
    EXPECT_THROW(run(request), ConfigError);
  };
  refused([](P2pBenchmarkRequest& r) { r.ranks.ranks = 1; });
  refused([](P2pBenchmarkRequest& r) { r.pairs = {{0, 2}}; });
  refused([](P2pBenchmarkRequest& r) { r.filter.transports = {"pigeon"}; });
  refused([](P2pBenchmarkRequest& r) { r.filter.movers = {"oxen"}; });
  refused([](P2pBenchmarkRequest& r) { r.filter = {.transports = {"direct"}, .movers = {"sm_read"}}; });
}

class GpuBenchP2p : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  }
};

TEST_F(GpuBenchP2p, MeasuresMailboxesBesideNccl) {
  P2pBenchmarkRequest request;
  request.ranks.ranks = 2;
  request.ranks.device = "cuda";
  request.sizes = {.sizes = {"4K", "1M", "20000000"}};
  request.rounds = 2;
  request.product_dim = 1024;
  const P2pOutcome r = run(request);
  ASSERT_EQ(r.status, 0);
  ASSERT_EQ(r.result["pairs"].size(), 2u);
  for (const Json& pair : r.result["pairs"]) {
    EXPECT_GT(pair["plain_copy"]["gb_per_s"].get<double>(), 1);
    EXPECT_EQ(method_of(pair, "vmm")["reason"], "needs --processes");
    EXPECT_TRUE(method_of(pair, "host")["available"].get<bool>()) << pair.dump(2);
    EXPECT_TRUE(method_of(pair, "nccl")["available"].get<bool>()) << pair.dump(2);
    EXPECT_EQ(method_of(pair, "direct")["available"], pair["peer_access"]) << pair.dump(2);
    EXPECT_EQ(pair.contains("warning"), !pair["peer_access"].get<bool>());
    EXPECT_EQ(pair["products"]["dtype"], "bf16");
    EXPECT_FALSE(pair["products"]["beside"].empty());
  }
}

TEST_F(GpuBenchP2p, WithoutPeerAccessWarnsOfTheCliff) {
  P2pBenchmarkRequest request;
  request.ranks.ranks = 2;
  request.ranks.device = "cuda";
  request.pairs = {{0, 1}};
  request.sizes = {.sizes = {"1M"}};
  request.rounds = 1;
  request.products = false;
  request.filter.without_peer_access = true;
  const P2pOutcome r = run(request);
  EXPECT_THAT(r.result["pairs"][0]["warning"].get<std::string>(),
              AllOf(HasSubstr("peer access is not used"), HasSubstr("GB/s")));
}

}  // namespace
}  // namespace plait::bench::test
