// What comm.exchanges: auto stands for on a machine.
#include "launch/exchange_way.h"

#include <gtest/gtest.h>

#include "core/config.h"
#include "topology/assumed_topology.h"
#include "topology/replicate.h"

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

std::optional<CollectiveWay> way_on(const std::string& device, int gpus, const Config& config = tensor_2(),
                                    DeviceKind kind = DeviceKind::cuda) {
  topology::Fabric fabric(topology::assume_topology(kind, device, gpus).graph);
  return exchange_way(config, fabric, kind);
}

TEST(ExchangeWays, AreLinksWhereNvlinkJoinsEveryTwoGpusOfTheOneHost) {
  EXPECT_EQ(way_on("H200", 2), CollectiveWay::links);
  EXPECT_EQ(way_on("H100", 8), CollectiveWay::links);
  EXPECT_EQ(way_on("H100", 16), std::nullopt) << "two hosts";
  EXPECT_EQ(way_on("RTX 4090", 2), std::nullopt) << "PCIe";
  EXPECT_EQ(way_on("cpu", 2, tensor_2(), DeviceKind::host), std::nullopt);
}

TEST(ExchangeWays, AreNotDecidedWhereTheConfigurationSaysSomething) {
  for (const char* said :
       {"comm.exchanges=library", "comm.exchanges=links", "comm.p2p=host", "comm.p2p_pairs=[0-1=host]", "parallel.tensor=1"})
    EXPECT_EQ(way_on("H200", 2, tensor_2({said})), std::nullopt) << said;
}

}  // namespace
}  // namespace plait::launch
