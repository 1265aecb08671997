// `plait topo` as a user runs it. What it draws of which machine is tested in tests/comm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/device.h"
#include "core/temporary_directory.h"
#include "run_plait.h"
#include "topology/import.h"
#include "topology/topology_files.h"
#include "topology/topology_json.h"

namespace plait::app {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using topology::GpusNeeded;
using topology::import_topology;
using topology::test::fixture;

class TopoCommand : public testing::Test {
 protected:
  Outcome topo(const std::string& arguments) { return run_plait(folder.path(), "topo " + arguments); }
  std::string write(const std::string& name, const std::string& text) {
    const std::string file = folder.path() + "/" + name;
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  plait::test::TemporaryDirectory folder;
};

TEST_F(TopoCommand, EveryFormatIsDrawn) {
  for (const char* name : {"dgx1v.txt", "bridge_pairs.xml", "two_sockets.xml", "nvswitch8.xml", "rails_2x4.json"}) {
    const Outcome outcome = topo("--from " + fixture(name));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.output, HasSubstr("GPU0"));
    EXPECT_THAT(outcome.output, HasSubstr("NUMA nodes"));
    EXPECT_THAT(outcome.output, HasSubstr("GB/s in one direction"));
    EXPECT_THAT(outcome.errors, IsEmpty());
  }
}

TEST_F(TopoCommand, JsonIsOneDocumentThatIsReadBackAsTheSame) {
  for (const char* name : {"dgx1v.txt", "two_sockets.xml", "rails_2x4.json"}) {
    const Outcome first = topo("--json --from " + fixture(name));
    ASSERT_EQ(first.status, 0) << first.errors;
    EXPECT_TRUE(nlohmann::json::accept(first.output));
    EXPECT_EQ(import_topology(first.output, name).graph, import_topology(fixture(name)).graph);
    EXPECT_EQ(topo("--json --from " + write("first.json", first.output)).output, first.output);
  }
}

TEST_F(TopoCommand, ThisMachineIsDrawnAndItsJsonReadBack) {
  const Outcome text = topo("");
  EXPECT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("NUMA nodes"));
  EXPECT_THAT(text.output, HasSubstr("CPUs "));
  std::string why;
  if (cuda_device_count(&why) == 0) {
    EXPECT_THAT(text.output, HasSubstr("No GPU"));
  }
  const Outcome json = topo("--json");
  ASSERT_EQ(json.status, 0) << json.errors;
  const std::string file = write("live.json", json.output);
  EXPECT_FALSE(import_topology(json.output, "live", GpusNeeded::no).machine.cpus.empty());
  EXPECT_EQ(topo("--json --from " + file).output, json.output);
}

TEST_F(TopoCommand, WarningsNameTheLineAndStayOffTheJson) {
  const std::string broken = write("self.xml", R"(<system version="1">
<cpu numaid="0" host_hash="0x1">
<pci busid="0000:01:00.0" class="0x030000">
<gpu dev="0" sm="80" rank="0">
<nvlink target="0000:01:00.0" count="4" tclass="0x030000"/>
</gpu></pci></cpu></system>
)");
  EXPECT_THAT(topo("--from " + broken).output, HasSubstr("line 5: gpu0 lists a link to itself"));
  const Outcome json = topo("--json --from " + broken);
  EXPECT_TRUE(nlohmann::json::accept(json.output));
  EXPECT_THAT(json.errors, HasSubstr("(line 5)"));
}

TEST_F(TopoCommand, AHostIsReplicatedOntoANetwork) {
  const Outcome text = topo("--replicate 16 --network-gb-per-s 50 --from " + fixture("nvswitch8.xml"));
  EXPECT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("128 GPUs"));
  EXPECT_THAT(text.output, HasSubstr("Hosts 0-15"));
  EXPECT_THAT(text.output, HasSubstr("rail7: 16 NICs, 800 GB/s"));
  const Outcome flat = topo("--replicate 2 --network flat --json --from " + fixture("nvswitch8.xml"));
  EXPECT_EQ(gpus_of(import_topology(flat.output, "flat").graph).size(), 16u);
  EXPECT_THAT(flat.output, Not(HasSubstr("rail")));
}

TEST_F(TopoCommand, WrongUseIsRefusedWithStatusTwo) {
  const std::pair<std::string, std::string> cases[] = {
      {"--from " + folder.path() + "/missing", "cannot be read"},
      {"--from " + write("empty", ""), "the file is empty"},
      {"--from " + fixture("bridge_pairs.xml") + " --measure", "excludes"},
      {"--network flat", "requires --replicate"},
      {"--replicate 0 --from " + fixture("nvswitch8.xml"), "--replicate"},
      {"--replicate 2 --network ring --from " + fixture("nvswitch8.xml"), "ring"},
      {"--replicate 2 --from " + fixture("rails_2x4.json"),
       "--replicate=2: makes copies of one host, and this topology is already of 2 hosts"},
      {"--replicate 2 --from " + fixture("bridge_pairs.xml"), "--network-gb-per-s"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = topo(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.errors, HasSubstr(message)) << arguments;
    EXPECT_THAT(outcome.output, IsEmpty()) << arguments;
  }
}

TEST_F(TopoCommand, MeasuringNeedsTwoGpus) {
  if (cuda_device_count() >= 2) GTEST_SKIP() << "this machine has them: GpuTopoCommand";
  const Outcome outcome = topo("--measure");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("needs two GPUs"));
}

TEST(GpuTopoCommand, MeasuredPairsAreInTheDocument) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const plait::test::TemporaryDirectory folder;
  const Outcome outcome = run_plait(folder.path(), "topo --measure --json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const topology::Graph graph = import_topology(outcome.output, "live").graph;
  const auto gpus = static_cast<std::size_t>(cuda_device_count());
  EXPECT_EQ(graph.pairs.size(), gpus * (gpus - 1));
  for (const topology::PairMeasurement& pair : graph.pairs) {
    EXPECT_GT(pair.gb_per_s, 1);
    EXPECT_GT(pair.latency_us, 0);
    EXPECT_LT(pair.latency_us, 1000);
  }
}

}  // namespace
}  // namespace plait::app
