// What `plait bench p2p --concurrent` and `--before-after` measure, between CPU ranks; and between GPUs where there are two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench/bench_links.h"
#include "bench/concurrent_benchmark.h"
#include "bench/link_speed.h"
#include "bench/p2p_benchmark.h"
#include "core/error.h"
#include "core/error_of.h"
#include "topology/fake_sysfs.h"

namespace plait::bench::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("warning") && !line.starts_with("#")) most = std::max(most, line.size());
  }
  return most;
}

ConcurrentBenchmarkRequest concurrent_request(int ranks) {
  ConcurrentBenchmarkRequest request;
  request.ranks.device = "cpu";
  request.ranks.ranks = ranks;
  request.bytes = 100'000;
  request.rounds = 2;
  return request;
}

Json result_of(const ConcurrentBenchmarkRequest& request) {
  Json result;
  EXPECT_EQ(benchmark_concurrent(request, {.result = [&](const Json& json) { result = json; }, .note = {}}), 0);
  return result;
}

TEST(BenchConcurrent, MeasuresEachPairAllAtOnceAndTheBisection) {
  for (const int ranks : {2, 3, 4}) {
    for (const PeerAccessUse access : {PeerAccessUse::automatic, PeerAccessUse::off}) {
      ConcurrentBenchmarkRequest request = concurrent_request(ranks);
      request.ranks.peer_access = access;
      request.nominal = [](const comm::p2p::PairFacts& facts) {
        return facts.sender.rank == 0 ? std::optional(1e6) : std::nullopt;  // which no CPU reaches
      };
      const Json result = result_of(request);
      ASSERT_EQ(result["pairs"].size(), static_cast<std::size_t>(ranks * (ranks - 1)));
      double sum = 0;
      for (const Json& pair : result["pairs"]) {
        EXPECT_EQ(pair["transport"], access == PeerAccessUse::off ? "host" : "direct");
        EXPECT_GT(pair["alone_gb_per_s"].get<double>(), 0);
        EXPECT_GT(pair["at_once_gb_per_s"].get<double>(), 0);
        EXPECT_EQ(pair.contains("of_nominal"), pair["from"] == 0);
        sum += pair["alone_gb_per_s"].get<double>();
      }
      EXPECT_EQ(result["all_pairs"]["pairs"], ranks * (ranks - 1));
      EXPECT_EQ(result["bisection"]["pairs"], ranks / 2 * 2);
      EXPECT_NEAR(result["all_pairs"]["of_alone"].get<double>() * sum, result["all_pairs"]["gb_per_s"].get<double>(), 1e-6);
      const std::string table = concurrent_table(result);
      EXPECT_THAT(table, AllOf(HasSubstr("all pairs at once: "), HasSubstr("bisection, both ways: "),
                               HasSubstr("warning: 0 -> 1: "), Not(HasSubstr("warning: 1 -> 0: "))));
      EXPECT_THAT(table, HasSubstr("  alone GB/s  at once GB/s  of nominal\n"));
      EXPECT_LE(widest(table), 80u);
    }
  }
}

TEST(BenchConcurrent, OneWrongByteEndsTheBench) {
  ConcurrentBenchmarkRequest request = concurrent_request(3);
  FaultyLink::Fault fault;
  fault.after_receive = [](std::int64_t, View data) { static_cast<std::byte*>(data.data)[4711] ^= std::byte{1}; };
  request.make_link = [=](const comm::p2p::LinkSpec& spec, comm::Rendezvous& store) -> std::unique_ptr<comm::p2p::Link> {
    auto link = comm::p2p::make_link(spec, store);
    if (spec.from != 2 || spec.to != 1) return link;
    return std::make_unique<FaultyLink>(std::move(link), fault);
  };
  EXPECT_THAT(error_of<CommError>([&] { result_of(request); }),
              AllOf(HasSubstr("2 -> 1: rank 1 received wrong data: byte 4711")));
}

TEST(BenchConcurrent, AMessageThatNeverComesEndsTheBench) {
  ConcurrentBenchmarkRequest request = concurrent_request(2);
  request.ranks.timeout = std::chrono::milliseconds(300);
  FaultyLink::Fault fault;
  fault.sends = [](std::int64_t number) { return number < 20; };
  request.make_link = [=](const comm::p2p::LinkSpec& spec, comm::Rendezvous& store) -> std::unique_ptr<comm::p2p::Link> {
    auto link = comm::p2p::make_link(spec, store);
    if (spec.from != 0) return link;
    return std::make_unique<FaultyLink>(std::move(link), fault);
  };
  EXPECT_THAT(error_of<CommError>([&] { result_of(request); }), HasSubstr("not done after 300 ms"));
}

P2pBenchmarkRequest before_after_request() {
  P2pBenchmarkRequest request;
  request.ranks.device = "cpu";
  request.sizes = {.sizes = {"4K", "64K"}};
  request.rounds = 2;
  request.before_after = true;
  return request;
}

Json result_of(const P2pBenchmarkRequest& request) {
  Json result;
  EXPECT_EQ(benchmark_p2p(request, {.result = [&](const Json& json) { result = json; }, .note = {}}), 0);
  return result;
}

TEST(BenchBeforeAfter, SetsTheHostBesideTheBestWithPeerAccess) {
  P2pBenchmarkRequest request = before_after_request();
  request.nominal = [](const comm::p2p::PairFacts& facts) { return std::optional(facts.sender.rank == 0 ? 1e6 : 0.1); };
  const Json result = result_of(request);
  ASSERT_EQ(result["pairs"].size(), 2u);
  for (const Json& pair : result["pairs"]) {
    EXPECT_FALSE(pair.contains("products"));
    const Json &sides = pair["before_after"], &with = sides["with"], &without = sides["without"];
    EXPECT_EQ(with["transport"], "direct");
    EXPECT_EQ(without["transport"], "host");
    EXPECT_NEAR(sides["latency_ratio"].get<double>(),
                without["latency_microseconds"].get<double>() / with["latency_microseconds"].get<double>(), 1e-9);
    EXPECT_NEAR(sides["rate_ratio"].get<double>(), with["gb_per_s"].get<double>() / without["gb_per_s"].get<double>(), 1e-9);
    const Json& last = pair["methods"][0]["results"].back();
    EXPECT_NEAR(last["of_nominal"].get<double>() * pair["nominal_gb_per_s"].get<double>(), last["gb_per_s"].get<double>(),
                1e-6);
    EXPECT_EQ(pair.contains("slow"), pair["from"] == 0);
  }
  const std::string table = before_after_table(result, 80);
  EXPECT_THAT(table, AllOf(HasSubstr("latency of 4 KB, rate of 64 KB"), HasSubstr("warning: 0 -> 1: ")));
  EXPECT_LE(widest(table), 80u) << table;
  EXPECT_THAT(p2p_table(result, false, 80), HasSubstr("of nominal"));
}

TEST(BenchBeforeAfter, SaysNothingOfWhatIsNotThere) {
  P2pBenchmarkRequest request = before_after_request();
  request.filter.without_peer_access = true;
  const Json result = result_of(request);
  const Json& sides = result["pairs"][0]["before_after"];
  EXPECT_FALSE(sides.contains("with"));
  EXPECT_FALSE(sides.contains("rate_ratio"));
  EXPECT_EQ(sides["without"]["transport"], "host");
  EXPECT_THAT(before_after_table(result, 80), HasSubstr("  -            -       -      -      -        -"));
}

TEST(PcieSpeed, IsTheFastestSeenWhileDataMove) {
  const topology::test::FakeSysfs machine;
  const std::string device = "sys/bus/pci/devices/0000:1b:00.0/";
  machine.write(device + "max_link_speed", "32.0 GT/s PCIe\n");
  machine.write(device + "max_link_width", "16\n");
  machine.write(device + "current_link_speed", "2.5 GT/s PCIe\n");  // idle
  machine.write(device + "current_link_width", "8\n");
  PcieSpeedSampler sampler("0000:1b:00.0", topology::Sysfs(machine.root()));
  const auto until = [&](double speed) {
    for (int tries = 0; tries < 2000 && sampler.fastest().gt_per_s < speed; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return sampler.fastest();
  };
  EXPECT_TRUE(until(2.5).is_less_than_it_could());
  machine.write(device + "current_link_speed", "16.0 GT/s PCIe\n");
  EXPECT_EQ(until(16).gt_per_s, 16);
  machine.write(device + "current_link_speed", "2.5 GT/s PCIe\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(sampler.fastest().text(), "16 GT/s x8 of 32 GT/s x16");
}

TEST(PcieSpeed, OfWhatDoesNotTellItIsNotKnown) {
  const topology::test::FakeSysfs machine;
  machine.write("sys/bus/pci/devices/0000:1b:00.0/current_link_speed", "Unknown\n");
  machine.write("sys/bus/pci/devices/0000:1b:00.0/current_link_width", "255\n");
  for (const char* bus_id : {"", "0000:1b:00.0", "0000:ff:00.0"}) {
    PcieSpeedSampler sampler(bus_id, topology::Sysfs(machine.root()));
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    EXPECT_FALSE(sampler.fastest().known()) << bus_id;
    EXPECT_FALSE(sampler.fastest().is_less_than_it_could());
  }
}

class GpuBenchConcurrent : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  }
};

TEST_F(GpuBenchConcurrent, CarriesBothWaysAtOnce) {
  ConcurrentBenchmarkRequest request = concurrent_request(2);
  request.ranks.device = "cuda";
  request.bytes = std::size_t{16} << 20;
  const Json result = result_of(request);
  for (const Json& pair : result["pairs"]) EXPECT_GT(pair["alone_gb_per_s"].get<double>(), 1) << pair;
  EXPECT_GT(result["bisection"]["gb_per_s"].get<double>(), 1);
}

TEST_F(GpuBenchConcurrent, PeerAccessIsWorthIt) {
  P2pBenchmarkRequest request = before_after_request();
  request.ranks.device = "cuda";
  request.sizes = {};
  for (const Json& pair : result_of(request)["pairs"]) {
    if (!pair["peer_access"].get<bool>()) continue;
    EXPECT_GT(pair["before_after"]["rate_ratio"].get<double>(), 1) << pair["before_after"];
    EXPECT_TRUE(pair.contains("nominal_gb_per_s")) << pair["link"];
  }
}

}  // namespace
}  // namespace plait::bench::test
