// What `plait bench collectives` counts and verifies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/collectives_benchmark.h"
#include "comm/forwarding_communicator.h"
#include "core/error.h"

namespace plait::bench::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

TEST(BenchCollectives, BusBandwidthIsNcclTests) {
  EXPECT_DOUBLE_EQ(bus_bandwidth_factor(CollectiveKind::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_bandwidth_factor(CollectiveKind::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_bandwidth_factor(CollectiveKind::all_reduce, 8), 1.75);
  for (const CollectiveKind kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather, CollectiveKind::all_to_all}) {
    EXPECT_DOUBLE_EQ(bus_bandwidth_factor(kind, 2), 0.5);
    EXPECT_DOUBLE_EQ(bus_bandwidth_factor(kind, 4), 0.75);
    EXPECT_DOUBLE_EQ(bus_bandwidth_factor(kind, 8), 0.875);
  }
}

TEST(BenchCollectives, CountsAreNcclTests) {
  EXPECT_EQ(shown_count(CollectiveKind::all_reduce, 1000, 4), 1000);
  EXPECT_EQ(shown_count(CollectiveKind::reduce_scatter, 1000, 4), 250);
  EXPECT_EQ(shown_count(CollectiveKind::all_gather, 1000, 4), 250);
  EXPECT_EQ(shown_count(CollectiveKind::all_to_all, 1000, 4), 250);
}

CollectivesBenchmarkRequest small_request(int ranks, DType dtype) {
  CollectivesBenchmarkRequest request;
  request.ranks.device = "cpu";
  request.ranks.ranks = ranks;
  request.sizes = {.sizes = {"1000", "64K", "1300000"}};  // the last is longer than a period of the numbers
  request.dtype = dtype;
  request.rounds = 2;
  return request;
}

struct CollectivesOutcome {
  Json result;
  int status = -1;
};

CollectivesOutcome run(const CollectivesBenchmarkRequest& request) {
  CollectivesOutcome r;
  r.status = benchmark_collectives(request, {.result = [&](const Json& json) { r.result = json; }, .note = {}});
  return r;
}

TEST(BenchCollectives, TimesAndVerifiesAll) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int ranks : {2, 3}) {
      const CollectivesOutcome r = run(small_request(ranks, dtype));
      EXPECT_EQ(r.status, 0);
      EXPECT_EQ(r.result["wrong"], 0) << r.result.dump(2);
      ASSERT_EQ(r.result["collectives"].size(), 4u);
      double sum = 0;
      for (const Json& collective : r.result["collectives"]) {
        const auto kind = named<CollectiveKind>(collective["collective"].get<std::string>());
        ASSERT_TRUE(kind);
        ASSERT_EQ(collective["results"].size(), 3u);
        for (const Json& row : collective["results"]) {
          const double us = row["microseconds"].get<double>(), bytes = row["bytes"].get<double>();
          ASSERT_GT(us, 0);
          EXPECT_EQ(row["bytes"].get<std::size_t>() % (size_of(dtype) * static_cast<std::size_t>(ranks)), 0u);
          EXPECT_NEAR(row["algbw_gb_per_s"].get<double>(), bytes / us / 1e3, 1e-6);
          EXPECT_NEAR(row["busbw_gb_per_s"].get<double>(),
                      row["algbw_gb_per_s"].get<double>() * bus_bandwidth_factor(*kind, ranks), 1e-9);
          sum += row["busbw_gb_per_s"].get<double>();
        }
      }
      EXPECT_NEAR(r.result["average_busbw_gb_per_s"].get<double>(), sum / 12, 1e-9);
      EXPECT_THAT(collectives_table(r.result, 80),
                  AllOf(HasSubstr("#wrong"), HasSubstr("busbw"), HasSubstr("average bus bandwidth"), HasSubstr("redop")));
    }
  }
}

// Passes everything on, and spoils one element of what one rank gets out of one kind of collective.
class SpoilingCommunicator final : public comm::test::ForwardingCommunicator {
 public:
  SpoilingCommunicator(std::shared_ptr<comm::Communicator> inner, CollectiveKind faulty)
      : ForwardingCommunicator(std::move(inner)), faulty_(faulty) {}
  void all_reduce(StreamRef s, View data, comm::Reduction reduction) override {
    inner_->all_reduce(s, data, reduction);
    spoil(s, CollectiveKind::all_reduce, data);
  }
  void reduce_scatter(StreamRef s, View data, View part, comm::Reduction reduction) override {
    inner_->reduce_scatter(s, data, part, reduction);
    spoil(s, CollectiveKind::reduce_scatter, part);
  }
  void all_gather(StreamRef s, View part, View data) override {
    inner_->all_gather(s, part, data);
    spoil(s, CollectiveKind::all_gather, data);
  }
  void all_to_all(StreamRef s, View send, View receive) override {
    inner_->all_to_all(s, send, receive);
    spoil(s, CollectiveKind::all_to_all, receive);
  }

 private:
  void spoil(StreamRef s, CollectiveKind kind, View data) {
    if (kind != faulty_ || rank() != 1) return;
    s.enqueue_host([data] { data.as<float>()[data.elements() - 1] += 1; });
  }
  CollectiveKind faulty_;
};

TEST(BenchCollectives, OneWrongElementIsCounted) {
  for (const CollectiveKind faulty : all_collectives()) {
    CollectivesBenchmarkRequest request = small_request(2, DType::f32);
    request.rounds = 1;
    request.make_communicator = [faulty](const comm::GroupSpec& spec, comm::Rendezvous& store) {
      return std::make_shared<SpoilingCommunicator>(comm::make_communicator(spec, store), faulty);
    };
    const CollectivesOutcome r = run(request);
    EXPECT_EQ(r.status, 3) << to_string(faulty);
    EXPECT_EQ(r.result["wrong"], 3) << to_string(faulty);  // in each of three sizes
    for (const Json& collective : r.result["collectives"]) {
      const auto name = collective["collective"].get<std::string>();
      for (const Json& row : collective["results"]) {
        EXPECT_EQ(row["wrong"].get<int>(), name == to_string(faulty) ? 1 : 0) << name;
      }
    }
  }
}

TEST(BenchCollectives, RefusesOneRank) { EXPECT_THROW(run(small_request(1, DType::f32)), ConfigError); }

}  // namespace
}  // namespace plait::bench::test
