// What the log and plan.json say of exchanges: who pushes follows from what the links became.
#include "train/report/link_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/collective.h"
#include "parallel/job_plan.h"
#include "parallel/make_layout.h"

namespace plait::train {
namespace {

using testing::HasSubstr;
using testing::Not;
using ReportJson = nlohmann::ordered_json;

parallel::RankPlan exchanging_plan(std::vector<std::string> overrides, DeviceKind kind = DeviceKind::cuda) {
  overrides.emplace_back("parallel.tensor=3");
  const Config config = parse_config(
      "model: {layers: 2, hidden: 96, heads: 3, vocab: 96}\ndata: {tokenizer: random, sequence_length: 48}\n"
      "train: {steps: 1, global_batch: 1, micro_batch: 1}\n",
      overrides);
  return parallel::make_stage_plans(config, parallel::Decision{}, config.model.vocab, parallel::make_layout(1, 1, 3), kind)
      .front();
}

// Of rank 0 to both others.
ReportJson exchange_links(Transport first, Transport second) {
  const comm::p2p::LinkReport to_1{.from = 0, .to = 1, .facts = {}, .transport = first, .bridge = {}, .better = {}};
  const comm::p2p::LinkReport to_2{.from = 0, .to = 2, .facts = {}, .transport = second, .bridge = {}, .better = {}};
  return {to_json(to_1), to_json(to_2)};
}

TEST(ExchangeReport, KernelsPushWhereMessagesArriveInPlace) {
  const parallel::RankPlan plan = exchanging_plan({"comm.exchanges=links"});
  const std::size_t bytes = plan.slice_bytes(parallel::exchange_group);
  ASSERT_LT(bytes, link_collectives::longest_short_push);
  const ReportJson all = exchange_report(plan, exchange_links(Transport::direct, Transport::ipc));
  EXPECT_EQ(all["push_bytes"], bytes);
  EXPECT_EQ(all["mover"], "sm_write");
  EXPECT_EQ(all["links"][0]["mover"], "sm_write");
  EXPECT_EQ(all["links"][1]["mover"], "sm_write");
  EXPECT_THAT(exchange_text(all, 120), HasSubstr("pushed by sm_write, "));
  const ReportJson one = exchange_report(plan, exchange_links(Transport::vmm, Transport::host));
  EXPECT_EQ(one["mover"], "sm_write");
  EXPECT_EQ(one["links"][0]["mover"], "sm_write");
  EXPECT_EQ(one["links"][1]["mover"], "copy_engine");
  const ReportJson none = exchange_report(plan, exchange_links(Transport::relay, Transport::host));
  EXPECT_EQ(none["mover"], "copy_engine");
  EXPECT_EQ(none["links"][0]["mover"], "copy_engine");
  EXPECT_THAT(exchange_text(none, 120), HasSubstr("pushed by copy_engine, "));
}

TEST(ExchangeReport, GathersArriveInPlaceWhereAllLinksAllowIt) {
  const parallel::RankPlan plan = exchanging_plan({"comm.exchanges=links"});
  const auto report = [&](Transport first, Transport second) { return exchange_report(plan, exchange_links(first, second)); };
  const auto lands = HasSubstr("what is gathered lands first");
  for (const Transport transport : {Transport::direct, Transport::vmm}) {
    EXPECT_EQ(report(transport, transport)["gathers_in_place"], true);
    EXPECT_THAT(exchange_text(report(transport, transport), 120), Not(lands));
  }
  EXPECT_EQ(report(Transport::direct, Transport::vmm)["gathers_in_place"], false);
  EXPECT_THAT(exchange_text(report(Transport::ipc, Transport::ipc), 120), lands);
  const parallel::RankPlan whole = exchanging_plan({"comm.exchanges=links", "parallel.sequence_parallel=false"});
  EXPECT_FALSE(exchange_report(whole, exchange_links(Transport::ipc, Transport::ipc)).contains("gathers_in_place"));
}

TEST(ExchangeReport, CopyEnginesPushWhatIsTooLong) {
  const parallel::RankPlan plan =
      exchanging_plan({"comm.exchanges=links", "comm.mover=copy_engine", "train.micro_batch=48", "train.global_batch=48"});
  ASSERT_GT(plan.slice_bytes(parallel::exchange_group), link_collectives::longest_short_push);
  const ReportJson report = exchange_report(plan, exchange_links(Transport::direct, Transport::direct));
  EXPECT_EQ(report["mover"], "copy_engine");
  EXPECT_EQ(report["links"][0]["mover"], "copy_engine");
}

TEST(ExchangeReport, KernelsPushWhatHasLittleBesideIt) {
  // Long messages, and much to compute for a byte of them: in braids copy engines push, at the ends of the step kernels do.
  const parallel::RankPlan plan = exchanging_plan({"comm.exchanges=links", "model.hidden=12288", "model.heads=96",
                                                   "train.micro_batch=1", "train.global_batch=2", "data.sequence_length=3072"});
  const ReportJson report = exchange_report(plan, exchange_links(Transport::direct, Transport::direct));
  EXPECT_EQ(report["mover"], "copy_engine");
  EXPECT_EQ(report["links"][0]["mover"], "copy_engine");
  // Of two micro-batches over four halves of blocks and the head: a forward each, of which the second has a backward beside it.
  EXPECT_EQ(report["exchanges"], 20);
  EXPECT_EQ(report["by_kernel"], 5);
  EXPECT_THAT(exchange_text(report, 120), HasSubstr("5 of 20 exchanges of a step have little beside them: pushed by sm_write"));
  const ReportJson host = exchange_report(plan, exchange_links(Transport::host, Transport::host));
  EXPECT_EQ(host["by_kernel"], 0);
}

TEST(ExchangeReport, NobodyPushesBetweenCpusOrByTheLibrary) {
  const ReportJson cpus = exchange_report(exchanging_plan({"comm.exchanges=links"}, DeviceKind::host),
                                          exchange_links(Transport::direct, Transport::direct));
  EXPECT_FALSE(cpus.contains("mover"));
  EXPECT_FALSE(cpus.contains("push_bytes"));
  EXPECT_THAT(exchange_text(cpus, 120), Not(HasSubstr("pushed by")));
  EXPECT_FALSE(exchange_report(exchanging_plan({"comm.exchanges=library"}), ReportJson::array()).contains("mover"));
}

}  // namespace
}  // namespace plait::train
