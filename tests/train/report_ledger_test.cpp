// What people and dashboards see of a ledger, and bounds on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/word.h"
#include "parallel/ledger_json.h"
#include "train/report/ledger_text.h"
#include "train/report/progress.h"
#include "train/report/step_metrics.h"

namespace plait::train {
namespace {

using parallel::CommunicationKind;
using parallel::Ledger;
using testing::HasSubstr;
using testing::Not;

Ledger some() {
  Ledger ledger;
  ledger.step_ms = 50, ledger.compute_ms = 41.5, ledger.bubble_ms = 6, ledger.other_ms = 1;
  ledger.of(CommunicationKind::gradient_buckets) = {16, 20, 1.25};
  ledger.of(CommunicationKind::activations) = {8, 2.25, 0.25};
  ledger.peers = {{-1, 1.5, 0}, {2, 4.5, 0.25}};
  return ledger;
}

TEST(LedgerText, IsOneLine) {
  EXPECT_EQ(
      ledger_line(some()),
      "exposed 1.5 ms of 50.0 (3.0 %): gradient buckets 1.2, activations 0.2; hidden 20.8; bubble 6.0 (12.0 %), waited for "
      "rank 2 4.5");
  Ledger calm;
  calm.step_ms = calm.compute_ms = 10;
  EXPECT_EQ(ledger_line(calm), "exposed 0.0 ms of 10.0 (0.0 %); hidden 0.0; bubble 0.0 (0.0 %)");
  EXPECT_THAT(ledger_line({}), HasSubstr("(0.0 %)"));
  Ledger open = some();
  open.unsplit_ms = 0.25;
  EXPECT_THAT(ledger_line(open), HasSubstr("0.2 of it may be waiting for a sender"));
  open.peers = {{-1, 1.5, 0}};
  EXPECT_THAT(ledger_line(open), HasSubstr("waited for the last rank 1.5"));
}

TEST(LedgerText, TablesRanksAndFindsTheWorst) {
  Ledger calm;
  calm.step_ms = calm.compute_ms = 10;
  const std::string table = ledger_table({calm, some()}).text(200);
  EXPECT_THAT(table, HasSubstr("\n   0"));
  EXPECT_THAT(table, HasSubstr("\n   1    50.00"));
  EXPECT_THAT(table, HasSubstr("6.00 (12.0 %)"));
  EXPECT_THAT(table, HasSubstr("rank 2 4.5"));
  EXPECT_EQ(worst_rank({calm, some()}), 1);
  EXPECT_EQ(worst_rank({some(), calm}), 0);
  EXPECT_THAT(ledger_table({calm, some()}, {1}).text(200), Not(HasSubstr("\n   0")));
}

TEST(LedgerJson, GivesBackTheLedger) {
  const nlohmann::ordered_json json = some();
  EXPECT_EQ(json["kinds"]["gradient_buckets"]["hidden_ms"], 18.75);
  const auto back = nlohmann::ordered_json::parse(json.dump()).get<Ledger>();
  EXPECT_EQ(nlohmann::ordered_json(back), json);
  EXPECT_EQ(back.peers[1].rank, 2);
  EXPECT_EQ(back.exposed_ms(), some().exposed_ms());
}

TEST(StepMetricsLedger, IsFlatInMetricsAndASecondLineInTheLog) {
  StepMetrics metrics;
  metrics.exposed_comm_ms = 1.5;
  EXPECT_FALSE(to_json(metrics).contains("bubble_ms"));
  EXPECT_THAT(plain_text(metrics, 10, {}), Not(HasSubstr("\n")));
  metrics.ledger = some();
  const auto json = to_json(metrics);
  EXPECT_EQ(json["exposed_comm_ms"], 1.5);
  EXPECT_EQ(json["exposed_dp_ms"], 1.25);
  EXPECT_EQ(json["exposed_p2p_ms"], 0.25);
  EXPECT_EQ(json["exposed_tp_ms"], 0);
  EXPECT_EQ(json["hidden_comm_ms"], 20.75);
  EXPECT_EQ(json["bubble_ms"], 6);
  EXPECT_THAT(plain_text(metrics, 10, {}),
              HasSubstr("\n    exposed 3.0 % (most of it gradient buckets), bubble 12.0 %, waited for rank 2"));
  metrics.ledger->of(CommunicationKind::gradient_buckets).exposed_ms = 0;
  metrics.ledger->bubble_ms = 0.3;
  EXPECT_THAT(plain_text(metrics, 10, {}), Not(HasSubstr("\n")));  // a hundredth of the step is worth a line, not less
  metrics.ledger = some();
  EXPECT_THAT(status_text({.columns = 400}, 1, 10, metrics, {}, {}), HasSubstr("exposed 3.0%  bubble 12.0%"));
}

TEST(OverlapBounds, AreExceededByTheWorstRank) {
  Ledger worse = some();
  worse.of(CommunicationKind::activations).exposed_ms = 2;
  worse.of(CommunicationKind::exchanges) = {4, 3, 3};
  const std::vector<Ledger> ledgers = {some(), worse};
  EXPECT_TRUE(exceeded_bounds(ledgers, {}).empty());
  BoundsConfig bounds{.exposed_dp = "2.5%", .exposed_p2p = "4%", .exposed_tp = "6%", .exposed = "12.5%", .bubble = "12%"};
  EXPECT_TRUE(exceeded_bounds(ledgers, bounds).empty()) << "each is just allowed";
  bounds = {.exposed_dp = "2.4%", .exposed_p2p = "3.9%", .exposed_tp = "5.9%", .exposed = "12.4%", .bubble = "11%"};
  const std::vector<ExceededBound> exceeded = exceeded_bounds(ledgers, bounds);
  ASSERT_EQ(exceeded.size(), 5u);
  EXPECT_EQ(exceeded[1].name, "exposed_p2p");
  EXPECT_EQ(exceeded[1].rank, 1);
  EXPECT_EQ(exceeded[1].text(), "bounds.exposed_p2p: 3.9 % allowed, 4.00 % lost on rank 1");
  EXPECT_EQ(exceeded[4].rank, 0);
  EXPECT_TRUE(exceeded_bounds({}, bounds).empty());
}

}  // namespace
}  // namespace plait::train
