// What `plait bench ring` sends and compares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "bench/bench_links.h"
#include "bench/ring_benchmark.h"
#include "core/error.h"
#include "core/error_of.h"

namespace plait::bench::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

RingBenchmarkRequest small_request(int ranks) {
  RingBenchmarkRequest request;
  request.ranks.device = "cpu";
  request.ranks.ranks = ranks;
  request.messages = 150;  // two whole batches and a part of one
  request.max_bytes = 50'000;
  return request;
}

Json run(const RingBenchmarkRequest& request) {
  Json result;
  EXPECT_EQ(benchmark_ring(request, {.result = [&](const Json& json) { result = json; }, .note = {}}), 0);
  return result;
}

std::string failure(const RingBenchmarkRequest& request) {
  return error_of<CommError>([&] { return run(request); });
}

TEST(BenchRing, EveryRankSendsToTheNextAndEveryByteIsCompared) {
  for (const int ranks : {2, 3}) {
    const RingBenchmarkRequest request = small_request(ranks);
    const Json result = run(request);
    std::set<std::string> used;
    for (const Json& method : result["methods"]) {
      if (!method["available"].get<bool>()) {
        EXPECT_NE(method["reason"], "");
        continue;
      }
      used.insert(method["transport"].get<std::string>());
      ASSERT_EQ(method["hops"].size(), static_cast<std::size_t>(ranks));
      for (int from = 0; from < ranks; ++from) {
        const Json& hop = method["hops"][static_cast<std::size_t>(from)];
        EXPECT_EQ(hop["from"], from);
        EXPECT_EQ(hop["to"], (from + 1) % ranks);
        EXPECT_EQ(hop["messages"], request.messages);
        std::size_t bytes = 0;
        for (std::int64_t m = 0; m < request.messages; ++m) bytes += ring_message_bytes(request, from, m);
        EXPECT_EQ(hop["checked_bytes"], bytes);
        EXPECT_GT(hop["gb_per_s"].get<double>(), 0);
      }
    }
    EXPECT_EQ(used, (std::set<std::string>{"direct", "host", "nccl"}));
    EXPECT_THAT(ring_table(result, 80), AllOf(HasSubstr("0 -> 1"), HasSubstr("direct"), HasSubstr("GB/s")));
  }
}

TEST(BenchRing, SizesAreSpreadBetweenTheBoundsAndFollowTheSeed) {
  RingBenchmarkRequest request;
  request.min_bytes = 10;
  request.max_bytes = 100'000;
  int small = 0, differ = 0;
  RingBenchmarkRequest other = request;
  other.seed = 2;
  for (std::int64_t m = 0; m < 2000; ++m) {
    const std::size_t bytes = ring_message_bytes(request, 0, m);
    ASSERT_GE(bytes, request.min_bytes);
    ASSERT_LE(bytes, request.max_bytes);
    small += bytes < 1000;  // half of them: two of the four powers of ten
    differ += bytes != ring_message_bytes(other, 0, m);
  }
  EXPECT_NEAR(small, 1000, 150);
  EXPECT_GT(differ, 1900);
}

TEST(BenchRing, AWrongBitIsNamedByMessageByteAndHop) {
  for (const Transport transport : {Transport::direct, Transport::host, Transport::nccl}) {
    RingBenchmarkRequest request = small_request(3);
    request.make_link = faulty_links(transport, 1, flip_bit(130, 0));
    EXPECT_THAT(failure(request), AllOf(HasSubstr("ring by " + to_string(transport)), HasSubstr("hop 1 -> 2"),
                                        HasSubstr("message 130 of"), HasSubstr("byte 0 is 0x")));
  }
}

TEST(BenchRing, AnOldMessageInTheRingIsSeen) {
  RingBenchmarkRequest request = small_request(2);
  request.min_bytes = request.max_bytes = 4096;
  FaultyLink::Fault fault;
  auto kept = std::make_shared<std::vector<std::byte>>(4096);
  fault.after_receive = [kept](std::int64_t number, View data) {
    if (number == 10) std::memcpy(kept->data(), data.data, 4096);
    if (number == 12) std::memcpy(data.data, kept->data(), 4096);  // the slot's last content
  };
  request.make_link = faulty_links(Transport::direct, 0, fault);
  EXPECT_THAT(failure(request), AllOf(HasSubstr("hop 0 -> 1"), HasSubstr("message 12 of 4096 bytes")));
}

TEST(BenchRing, AMessageThatNeverComesEndsIt) {
  RingBenchmarkRequest request = small_request(3);
  request.ranks.timeout = std::chrono::milliseconds(300);
  FaultyLink::Fault fault;
  fault.sends = [](std::int64_t number) { return number < 100; };
  request.make_link = faulty_links(Transport::host, 2, fault);
  EXPECT_THAT(failure(request), AllOf(HasSubstr("ring by host.copy_engine"), HasSubstr("not done after 300 ms")));
}

TEST(BenchRing, RefusesWhatItCannotDo) {
  RingBenchmarkRequest request = small_request(2);
  request.min_bytes = request.max_bytes + 1;
  EXPECT_THROW(run(request), ConfigError);
  EXPECT_THROW(run(small_request(1)), ConfigError);
}

class GpuBenchRing : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  }
};

TEST_F(GpuBenchRing, EveryByteArrivesByEveryTransport) {
  RingBenchmarkRequest request;
  request.ranks.device = "cuda";
  request.messages = 500;
  const Json result = run(request);
  int used = 0;
  for (const Json& method : result["methods"]) used += method["available"].get<bool>() ? 1 : 0;
  EXPECT_GE(used, 2) << result.dump(2);
}

}  // namespace
}  // namespace plait::bench::test
