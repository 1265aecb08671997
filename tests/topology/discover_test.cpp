#include "topology/discover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "fake_sysfs.h"
#include "test_paths.h"
#include "topology/topology_json.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

const Node* find(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes) {
    if (node.name == name) return &node;
  }
  return nullptr;
}

// "gpu0-0000:10:00.0 24" of one kind.
std::vector<std::string> edges(const Graph& graph, LinkKind kind) {
  std::vector<std::string> texts;
  for (const Edge& edge : graph.edges) {
    if (edge.kind != kind) continue;
    std::ostringstream text;
    text << graph.nodes[static_cast<std::size_t>(edge.a)].name << "-" << graph.nodes[static_cast<std::size_t>(edge.b)].name
         << " " << edge.gb_per_s;
    texts.push_back(text.str());
  }
  return texts;
}

std::vector<std::string> texts(const Machine& machine) {
  std::vector<std::string> lines;
  for (const Finding& finding : machine.findings)
    lines.push_back(finding.about + ": " + finding.value + " | " + finding.effect);
  return lines;
}

class TopologyDiscover : public testing::Test {
 protected:
  Discovered find_all(std::vector<std::string> cuda = {}, const std::string& nvml = test_paths::fake_nvml) {
    Discovered found = discover({.root = machine.root(), .nvml_library = nvml, .cuda_gpus = std::move(cuda)});
    // Whatever a machine looks like, the document that `plait topo --json` prints is read back as the same.
    const Imported again = import_topology(to_json_text(found.graph, found.machine), "written", GpusNeeded::no);
    EXPECT_EQ(again.graph, found.graph);
    EXPECT_EQ(again.machine, found.machine);
    return found;
  }
  test::FakeSysfs machine;
};

TEST_F(TopologyDiscover, BuildsThePcieTreeWithItsSharedUplinks) {
  test::two_sockets(machine);
  const Graph graph = find_all().graph;
  EXPECT_THAT(problems_of(graph), IsEmpty());
  // 24 = x16 of Gen4. The root port of gpu3 is of Gen3, and half of its lanes do not run. A host bridge has what its ports
  // have.
  EXPECT_THAT(edges(graph, LinkKind::pcie),
              UnorderedElementsAre("0000:10:00.0-pci0000:00 24", "gpu0-0000:10:00.0 24", "gpu1-0000:10:00.0 24",
                                   "mlx5_0-0000:10:00.0 24", "gpu2-pci0000:80 24", "gpu3-pci0000:80 6", "eth0-pci0000:80 6",
                                   "pci0000:00-numa0 24", "pci0000:80-numa1 36"));
  EXPECT_THAT(edges(graph, LinkKind::smp), ElementsAre("numa0-numa1 8"));
  const Routes routes(graph);
  EXPECT_EQ(test::link(routes, 0, 1), "NV2 41.2");
  EXPECT_EQ(test::link(routes, 0, 2), "host 8") << "without access";
  ASSERT_NE(find(graph, "mlx5_0"), nullptr);
  EXPECT_EQ(find(graph, "mlx5_0")->port_gb_per_s, 25);
  EXPECT_EQ(find(graph, "eth0")->port_gb_per_s, 3.125);
  EXPECT_EQ(find(graph, "ib0"), nullptr);
  EXPECT_EQ(find(graph, "gpu2")->numa, 1);
  EXPECT_EQ(find(graph, "gpu2")->model, "sm90");
  EXPECT_EQ(find(graph, "gpu2")->bus_id, "0000:03:00.0");
}

TEST_F(TopologyDiscover, JoinsNvLinksOfPairsAndOfSwitchesAndC2cOfTheCpu) {
  test::two_sockets(machine);
  const Discovered found = find_all();
  EXPECT_THAT(edges(found.graph, LinkKind::nvlink),
              UnorderedElementsAre("gpu0-gpu1 41.2", "gpu2-nvswitch 61.8", "gpu3-nvswitch 61.8"));
  EXPECT_THAT(edges(found.graph, LinkKind::c2c), ElementsAre("gpu3-numa1 448"));
  EXPECT_THAT(texts(found.machine), Contains(HasSubstr("NVLink of gpu3: model not known")));
}

TEST_F(TopologyDiscover, TellsOfProcessorsMemoryAndPeerAccess) {
  test::two_sockets(machine);
  const Machine found = find_all().machine;
  EXPECT_EQ(found.driver, "580.82.07");
  EXPECT_THAT(found.cpus,
              ElementsAre(NumaCpus{0, "0-15,32-47", 263000000L * 1024}, NumaCpus{1, "16-31,48-63", 264000000L * 1024}));
  ASSERT_EQ(found.peers.size(), 12u);
  std::vector<std::string> access;
  for (const PeerStatus& peer : found.peers) access.emplace_back(to_string(peer.access));
  EXPECT_THAT(access, ElementsAre("yes", "unknown", "unknown", "yes", "unknown", "unknown", "no", "no", "no", "unknown",
                                  "unknown", "unknown"));
  EXPECT_THAT(found.peers[8].why, HasSubstr("registry key"));
}

TEST_F(TopologyDiscover, NumbersGpusAsCudaCountsThem) {
  test::two_sockets(machine);
  const Graph graph = find_all({"0000:04:00.0", "0000:02:00.0"}).graph;
  std::vector<std::string> addresses;
  for (const int gpu : gpus_of(graph)) addresses.push_back(graph.nodes[static_cast<std::size_t>(gpu)].bus_id);
  EXPECT_THAT(addresses, ElementsAre("0000:04:00.0", "0000:02:00.0", "0000:01:00.0", "0000:03:00.0"));
}

// One switch; a switch below another; two root ports of a host bridge; two host bridges of a NUMA node; two nodes.
TEST_F(TopologyDiscover, PathsHaveTheNamesThatNvidiaSmiGivesThem) {
  machine.numa_node(0, "0-3", 1000);
  machine.numa_node(1, "4-7", 1000);
  const std::string upper = "pci0000:00/0000:00:01.0/0000:10:00.0", lower = upper + "/0000:11:01.0/0000:12:00.0";
  const std::vector<std::string> gpus = {upper + "/0000:11:00.0/0000:20:00.0",   lower + "/0000:13:00.0/0000:21:00.0",
                                         lower + "/0000:13:01.0/0000:22:00.0",   "pci0000:00/0000:00:02.0/0000:23:00.0",
                                         "pci0000:40/0000:40:01.0/0000:24:00.0", "pci0000:80/0000:80:01.0/0000:25:00.0"};
  for (const char* port : {"", "/0000:11:00.0", "/0000:11:01.0", "/0000:11:01.0/0000:12:00.0",
                           "/0000:11:01.0/0000:12:00.0/0000:13:00.0", "/0000:11:01.0/0000:12:00.0/0000:13:01.0"})
    machine.pci(upper + port, "0x060400", 0);
  for (const char* port : {"pci0000:00/0000:00:01.0", "pci0000:00/0000:00:02.0", "pci0000:40/0000:40:01.0"})
    machine.pci(port, "0x060400", 0);
  machine.pci("pci0000:80/0000:80:01.0", "0x060400", 1);
  std::vector<std::string> addresses;
  for (const std::string& gpu : gpus) {
    machine.pci(gpu, "0x030200", gpu.starts_with("pci0000:80") ? 1 : 0);
    addresses.push_back(gpu.substr(gpu.rfind('/') + 1));
  }
  const Graph graph = find_all(addresses, "none").graph;
  const Routes routes(graph);
  const auto name = [&](std::size_t a, std::size_t b) { return routes.summary(routes.gpus()[a], routes.gpus()[b]).link; };
  EXPECT_EQ(name(1, 2), "PIX");
  EXPECT_EQ(name(0, 1), "PXB");
  EXPECT_EQ(name(0, 3), "PHB");
  EXPECT_EQ(name(0, 4), "NODE");
  EXPECT_EQ(name(0, 5), "SYS");
}

TEST_F(TopologyDiscover, WarnsOfMissingLanes) {
  test::two_sockets(machine);
  EXPECT_THAT(texts(find_all().machine), Contains(HasSubstr("PCIe of gpu3: x8 of x16")));
}

TEST_F(TopologyDiscover, FindsWhatKeepsGpusFromEachOther) {
  test::two_sockets(machine);
  machine.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz intel_iommu=on quiet\n");
  machine.write("sys/class/iommu/dmar0/name", "");
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"})
    machine.write(std::string("sys/bus/pci/devices/") + gpu + "/iommu_group/type", "DMA-FQ\n");
  machine.write("sys/bus/pci/devices/0000:04:00.0/iommu_group/type", "identity\n");
  // ACS behind another capability; the first port redirects requests, the second does nothing.
  std::string config(4096, '\0');
  config.replace(0x100, 4, std::string("\x01\x00\x01\x20", 4));
  config.replace(0x200, 8, std::string("\x0d\x00\x01\x00\x00\x00\x04\x00", 8));
  machine.write("sys/bus/pci/devices/0000:11:00.0/config", config);
  config[0x206] = 0;
  machine.write("sys/bus/pci/devices/0000:11:01.0/config", config);
  const auto found = texts(find_all().machine);
  EXPECT_THAT(found, Contains(testing::AllOf(HasSubstr("IOMMU: on (1 unit; gpu0, gpu1, gpu2: DMA-FQ; gpu3: identity)"),
                                             HasSubstr("intel_iommu=on"), HasSubstr("iommu=pt"))));
  EXPECT_THAT(found, Contains(testing::AllOf(HasSubstr("PCIe ACS: redirects at 0000:11:00.0 |"), Not(HasSubstr("11:01")))));
  EXPECT_THAT(found, Contains(HasSubstr("GPUDirect RDMA: nvidia_peermem is not loaded")));
  EXPECT_THAT(found, Not(Contains(HasSubstr("virtual machine"))));
}

TEST_F(TopologyDiscover, NamespacesAreTheContainersWhereTheirNumbersAreNotTheFirst) {
  test::two_sockets(machine);
  std::filesystem::create_directories(machine.root() / "proc/self/ns");
  std::filesystem::create_symlink("pid:[4026532999]", machine.root() / "proc/self/ns/pid");
  std::filesystem::create_symlink("ipc:[4026531839]", machine.root() / "proc/self/ns/ipc");
  EXPECT_THAT(texts(find_all().machine), Contains(HasSubstr("container: PID namespace of its own")));
}

TEST_F(TopologyDiscover, AcsThatOnlyRootCanReadIsNamed) {
  test::two_sockets(machine);
  machine.write("sys/bus/pci/devices/0000:11:00.0/config", std::string(64, '\0'));
  EXPECT_THAT(texts(find_all().machine),
              Contains(HasSubstr("PCIe ACS: not readable at 2 of 2 switch ports | run `plait topo` as root")));
}

TEST_F(TopologyDiscover, ACircleOfCapabilitiesEnds) {
  test::two_sockets(machine);
  std::string config(4096, '\0');
  config.replace(0x100, 4, std::string("\x01\x00\x01\x20", 4));
  config.replace(0x200, 4, std::string("\x02\x00\x01\x10", 4));
  for (const char* port : {"0000:11:00.0", "0000:11:01.0"})
    machine.write(std::string("sys/bus/pci/devices/") + port + "/config", config);
  EXPECT_THAT(texts(find_all().machine), Contains(HasSubstr("PCIe ACS: no redirection")));
}

TEST_F(TopologyDiscover, WithoutSysfsGpusStillHaveTheirNvLinks) {
  const Discovered found = find_all();
  EXPECT_THAT(problems_of(found.graph), IsEmpty());
  EXPECT_EQ(gpus_of(found.graph).size(), 4u);
  EXPECT_EQ(test::link(Routes(found.graph), 0, 1), "NV2 41.2");
  EXPECT_THAT(texts(found.machine), Contains(HasSubstr("place of gpu0: not in sysfs")));
}

TEST_F(TopologyDiscover, AMachineWithoutDriverSaysWhatItLeftOut) {
  test::two_sockets(machine);
  const Discovered found = find_all({}, "libplait-has-no-such-nvml.so.1");
  EXPECT_THAT(gpus_of(found.graph), IsEmpty());
  EXPECT_THAT(texts(found.machine), Contains(HasSubstr("GPUs left out: 4 NVIDIA GPUs")));
  ASSERT_NE(find(found.graph, "numa1"), nullptr);
  ASSERT_NE(find(found.graph, "mlx5_0"), nullptr);
}

TEST_F(TopologyDiscover, DevicesWithoutNumaNodeAreAtTheOnlyOneOrAtOneWithoutNumber) {
  machine.numa_node(0, "0-7", 1000);
  machine.pci("pci0000:00/0000:00:05.0", "0x030200", -1);
  machine.write("sys/devices/virtio-test", "");
  machine.link("sys/bus/pci/devices/0000:01:00.0", "sys/devices/pci0000:00/0000:00:05.0");  // nonsense is no place
  Discovered found = find_all({"0000:00:05.0"});
  EXPECT_EQ(find(found.graph, "gpu0")->numa, 0);
  EXPECT_THAT(edges(found.graph, LinkKind::pcie), Contains("gpu0-pci0000:00 24"));
  machine.numa_node(1, "8-15", 1000);
  found = find_all({"0000:00:05.0"});
  EXPECT_EQ(find(found.graph, "gpu0")->numa, -1);
  ASSERT_NE(find(found.graph, "numa?"), nullptr);
  EXPECT_THAT(edges(found.graph, LinkKind::smp), UnorderedElementsAre("numa?-numa0 8", "numa?-numa1 8", "numa0-numa1 8"));
}

TEST_F(TopologyDiscover, VirtioInterfacesAreNicsAndVirtualFunctionsAreNot) {
  machine.numa_node(0, "0-7", 1000);
  machine.pci("pci0000:00/0000:00:03.0", "0x020000", -1, "Unknown", 0, 0);
  machine.write("sys/devices/pci0000:00/0000:00:03.0/virtio0/status", "");
  machine.network("eth0", "sys/devices/pci0000:00/0000:00:03.0/virtio0", "-1");
  machine.pci("pci0000:00/0000:00:04.0", "0x020000", -1);
  machine.link("sys/devices/pci0000:00/0000:00:04.0/physfn", "sys/devices/pci0000:00/0000:00:03.0");
  machine.network("eth1", "sys/bus/pci/devices/0000:00:04.0", "10000");
  machine.infiniband("mlx5_9", "0000:00:04.0", "100 Gb/sec");
  const Graph graph = find_all({}, "none").graph;
  ASSERT_NE(find(graph, "eth0"), nullptr);
  EXPECT_EQ(find(graph, "eth0")->port_gb_per_s, 0);
  EXPECT_EQ(find(graph, "eth1"), nullptr);
  EXPECT_EQ(find(graph, "mlx5_9"), nullptr);
  EXPECT_THAT(edges(graph, LinkKind::pcie), Contains("eth0-pci0000:00 12"));
}

TEST(TopologyDiscoverHere, ThisMachineHasNumaNodesAndProcessors) {
  const Discovered found = discover_live();
  ASSERT_FALSE(found.machine.cpus.empty());
  EXPECT_GT(count_cpus(found.machine.cpus.front().cpus), 0) << found.machine.cpus.front().cpus;
  Graph graph = found.graph;
  if (!gpus_of(graph).empty()) {
    EXPECT_THAT(problems_of(graph), IsEmpty());
  }
}

TEST(TopologyMachine, ListsOfProcessorsAreCounted) {
  EXPECT_EQ(count_cpus("0"), 1);
  EXPECT_EQ(count_cpus("0-15,32-47"), 32);
  for (const char* const text : {"", "a", "3-1", "0-", "0,", ",0", "0-99999999", "-1", "0 1"})
    EXPECT_EQ(count_cpus(text), 0) << text;
}

}  // namespace
}  // namespace plait::topology
