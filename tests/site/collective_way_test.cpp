// What comm.exchanges and comm.reductions: auto stand for on a machine.
#include "site/site_planning.h"

#include <gtest/gtest.h>

#include "config/config.h"
#include "core/collective.h"
#include "parallel/rank_plan.h"
#include "topology/assumed_topology.h"

namespace plait::launch {
namespace {

Config tensor_2(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"parallel.tensor=2"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_config(
      "model: {layers: 2, hidden: 64, heads: 4, vocab: 64}\ndata: {tokenizer: random}\ntrain: {steps: 1, global_batch: 8, "
      "micro_batch: "
      "1}\n",
      all);
}

ModelConfig model_of(const std::string& preset) {
  return parse_config(
             "model: {preset: " + preset + "}\ndata: {tokenizer: random}\ntrain: {steps: 1, global_batch: 8, micro_batch: 1}\n",
             {})
      .model;
}

std::optional<CollectiveWay> way_on(const std::string& device, int gpus, const Config& config = tensor_2(),
                                    DeviceKind kind = DeviceKind::cuda) {
  topology::Fabric fabric(topology::assume_topology(kind, device, gpus).graph);
  return site::collective_way(config, fabric, kind);
}

TEST(CollectiveWays, AreLinksWhereNvlinkJoinsEveryTwoGpusOfTheOneHost) {
  EXPECT_EQ(way_on("H200", 2), CollectiveWay::links);
  EXPECT_EQ(way_on("H100", 8), CollectiveWay::links);
  EXPECT_EQ(way_on("H100", 16), std::nullopt) << "two hosts";
  EXPECT_EQ(way_on("RTX 4090", 2), std::nullopt) << "PCIe";
  EXPECT_EQ(way_on("cpu", 2, tensor_2(), DeviceKind::host), std::nullopt);
}

TEST(CollectiveWays, AreNotDecidedWhereTheConfigurationSaysWhatGoesByWhat) {
  using Overrides = std::vector<std::string>;
  for (const Overrides& said :
       {Overrides{"comm.p2p=host"}, Overrides{"comm.p2p_pairs=[0-1=host]"}, Overrides{"comm.peer_access=off"},
        Overrides{"comm.exchanges=library", "comm.reductions=links"}, Overrides{"comm.exchanges=library", "parallel.data=1"},
        Overrides{"parallel.tensor=1", "comm.reductions=library"}, Overrides{"parallel.tensor=1", "parallel.data=1"}})
    EXPECT_EQ(way_on("H200", 2, tensor_2(said)), std::nullopt) << said.front();
  for (const Overrides& said : {Overrides{"comm.exchanges=links"}, Overrides{"parallel.tensor=1"}, Overrides{"parallel.data=1"},
                                Overrides{"comm.reductions=library"}})
    EXPECT_EQ(way_on("H200", 2, tensor_2(said)), CollectiveWay::links) << said.front();
}

// What follows from it, for groups of some size.
TEST(CollectiveWays, AreTakenByAutoWhereTheyWereFaster) {
  Config config = tensor_2();
  parallel::Decision decision;
  const auto exchanges = [&](int ranks) { return parallel::choose_exchanges(config, decision, ranks, DeviceKind::cuda).way; };
  const auto reductions = [&](int ranks) { return parallel::choose_reductions(config, decision, ranks, DeviceKind::cuda).way; };
  using enum CollectiveWay;
  config.parallel.zero = 1;
  EXPECT_EQ(exchanges(2), library) << "nobody said what there is";
  EXPECT_EQ(reductions(2), library);
  decision.collectives = links;
  EXPECT_EQ(exchanges(4), links);
  EXPECT_EQ(exchanges(5), library);
  EXPECT_EQ(reductions(4), links);
  EXPECT_EQ(reductions(5), library);
  config.parallel.zero = 0;
  EXPECT_EQ(reductions(2), library);
  EXPECT_EQ(exchanges(2), links);
  config.parallel.zero = 2;
  EXPECT_EQ(reductions(2), links);
  config.train.graph = GraphUse::on;
  EXPECT_EQ(exchanges(2), library);
  EXPECT_EQ(reductions(2), library);
  config.comm.exchanges = config.comm.reductions = links;
  EXPECT_EQ(exchanges(8), links);
  EXPECT_EQ(reductions(8), links);
}

// Sizes of pushes in MB that were measured on four GPUs.
TEST(CollectiveWays, ExchangesArePushedByKernelsWhereThatWasFaster) {
  Config config = tensor_2();
  config.parallel.zero = 1;
  const auto by_kernel = [&](const char* preset, double megabytes, int ranks = 4,
                             int beside = link_collectives::quarters_beside_in_braid) {
    config.model = model_of(preset);
    return megabytes * 1e6 <=
           static_cast<double>(
               parallel::choose_exchanges(config, parallel::Decision{}, ranks, DeviceKind::cuda).longest_beside(beside));
  };
  EXPECT_TRUE(by_kernel("gpt2-124m", 3.1));
  EXPECT_TRUE(by_kernel("gpt2-774m", 2.6));
  EXPECT_TRUE(by_kernel("llama3-1b", 2.1));
  EXPECT_FALSE(by_kernel("gpt-2.8b", 2.6));
  EXPECT_TRUE(by_kernel("gpt-2.8b", 2.6, 4, 2)) << "beside a weight part";
  EXPECT_FALSE(by_kernel("gpt-2.8b", 5.2, 4, 2));
  EXPECT_TRUE(by_kernel("gpt-2.8b", 100, 4, 0)) << "beside nothing";
  EXPECT_FALSE(by_kernel("gpt-2.8b", 0.1, 2, 0)) << "one copy engine begins as soon";
  EXPECT_FALSE(by_kernel("gpt2-124m", 3.1, 2)) << "one copy engine begins as soon";
  EXPECT_TRUE(by_kernel("gpt-2.8b", 0.06, 2)) << "short";
  config.precision.matmul = MatmulType::fp8;
  EXPECT_TRUE(by_kernel("gpt-2.8b", 2.6));
  EXPECT_FALSE(by_kernel("gpt-2.8b", 5.2));
  EXPECT_EQ(parallel::choose_reductions(config, parallel::Decision{}, 4, DeviceKind::cuda).longest_by_kernel,
            link_collectives::longest_short_push);
  config.comm.mover = Mover::copy_engine;
  EXPECT_FALSE(by_kernel("gpt2-124m", 0.1));
  EXPECT_FALSE(by_kernel("gpt2-124m", 0.1, 4, 0));
  config.comm.mover = Mover::sm_write;
  EXPECT_TRUE(by_kernel("gpt-2.8b", 100, 2));
  EXPECT_EQ(parallel::choose_reductions(config, parallel::Decision{}, 4, DeviceKind::cuda).longest_by_kernel,
            link_collectives::longest_short_push);
}

TEST(CollectiveWays, KernelsPushBetweenGpusThatReachEachOthersMemoryOnly) {
  Config config = tensor_2();
  config.parallel.zero = 1;
  using Both = std::pair<std::size_t, std::size_t>;
  const auto longest = [&](DeviceKind kind) {
    return Both{parallel::choose_exchanges(config, parallel::Decision{}, 3, kind).longest_beside(0),
                parallel::choose_reductions(config, parallel::Decision{}, 3, kind).longest_by_kernel};
  };
  const Both some = longest(DeviceKind::cuda), none{0, 0};
  EXPECT_GT(some.first, link_collectives::longest_short_push);
  EXPECT_EQ(some.second, link_collectives::longest_short_push);
  EXPECT_EQ(longest(DeviceKind::host), none);
  for (const Transport transport : {Transport::direct, Transport::vmm, Transport::ipc}) {
    config.comm.p2p = transport;
    EXPECT_EQ(longest(DeviceKind::cuda), some) << to_string(transport);
  }
  for (const Transport transport : {Transport::relay, Transport::host}) {
    config.comm.p2p = transport;
    EXPECT_EQ(longest(DeviceKind::cuda), none) << to_string(transport);
  }
  config.comm.p2p = automatic;
  config.comm.peer_access = PeerAccessUse::off;
  EXPECT_EQ(longest(DeviceKind::cuda), none);
}

}  // namespace
}  // namespace plait::launch
