#include "topology/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "topology/assumed_topology.h"
#include "topology/topology_json.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using test::read;
using testing::HasSubstr;
using testing::Not;

TEST(TopologyDescribe, LatenciesAreShownWhereOneIsKnown) {
  Graph graph = read("bridge_pairs.xml").graph;
  EXPECT_THAT(describe("x", graph, {}, {}), Not(HasSubstr("Latency")));
  const std::vector<int> gpus = gpus_of(graph);
  graph.pairs = {{gpus[0], gpus[1], 77.25, 3.5}};
  EXPECT_THAT(describe("x", graph, {}, {}), HasSubstr("3.5m"));
}

TEST(TopologyDescribe, PeersFindingsAndWarningsAreListed) {
  Graph graph = read("bridge_pairs.xml").graph;
  const std::vector<int> gpus = gpus_of(graph);
  Machine machine;
  machine.cpus = {{0, "0-15", std::int64_t{64} << 30}};
  machine.peers = {{gpus[0], gpus[1], PeerAccess::yes, "", 1, 0}, {gpus[1], gpus[0], PeerAccess::no, "no chipset", 0, 1}};
  machine.findings = {{"IOMMU", "on", "boot with iommu=pt"}};
  set_access(graph, machine.peers);
  const std::string text = describe("FILE", graph, machine, {{7, "strange"}});
  for (const char* const part : {"FILE\n", "CPUs 0-15 (16), 64 GiB", "yes: GPU0->GPU1", "no: GPU1->GPU0; no chipset",
                                 "native atomics: 1 of 2", "IOMMU: on\n    boot with iommu=pt", "line 7: strange"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const Imported again = import_topology(to_json_text(graph, machine), "written");
  EXPECT_EQ(again.machine, machine);
  EXPECT_EQ(again.graph, graph);
}

TEST(TopologyDescribe, HostsThatAreAlikeAreDrawnOnce) {
  const std::string text = describe("x", replicate(read("nvswitch8.xml").graph, {.hosts = 100}), {}, {});
  EXPECT_THAT(text, HasSubstr("Hosts 0-99\n"));
  EXPECT_THAT(text, HasSubstr("rail0: 100 NICs"));
  EXPECT_THAT(text, HasSubstr("gpu0 to host1/gpu0: NET"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 80);
  Graph one_differs = replicate(read("nvswitch8.xml").graph, {.hosts = 3});
  one_differs.edges[one_differs.edges.size() / 3].gb_per_s = 1;
  EXPECT_THAT(describe("x", one_differs, {}, {}), Not(HasSubstr("Hosts 0-2\n")));
}

}  // namespace
}  // namespace plait::topology
