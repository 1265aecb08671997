#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "topology/topology_json.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using test::fixture;
using test::link;
using test::messages;
using test::refusal;
using test::replaced;
using test::text_of;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(TopologyXml, BridgePairs) {
  const Imported imported = import_topology(fixture("bridge_pairs.xml"));
  EXPECT_EQ(imported.format, "nccl-xml");
  EXPECT_THAT(messages(imported), IsEmpty());
  const Routes routes(imported.graph);
  EXPECT_EQ(link(routes, 0, 2), "NV4 48");
  EXPECT_EQ(link(routes, 3, 1), "NV4 48");
  EXPECT_EQ(link(routes, 0, 1), "PHB 12");
  const Node& gpu = imported.graph.nodes[static_cast<std::size_t>(routes.gpus()[1])];
  EXPECT_EQ(gpu.name, "gpu1");
  EXPECT_EQ(gpu.bus_id, "0000:25:00.0");
  EXPECT_EQ(gpu.model, "sm86");
  EXPECT_EQ(gpu.numa, 0);
}

TEST(TopologyXml, TwoSockets) {
  const Imported imported = import_topology(fixture("two_sockets.xml"));
  EXPECT_THAT(messages(imported), IsEmpty());
  const Routes routes(imported.graph);
  EXPECT_EQ(link(routes, 0, 1), "PIX 12");
  EXPECT_EQ(link(routes, 0, 2), "PXB 12");  // two partitions of a switch
  EXPECT_EQ(link(routes, 3, 4), "PHB 12");
  EXPECT_EQ(link(routes, 1, 3), "SYS 8");
  const auto is_nic = [](const Node& node) { return node.kind == NodeKind::nic; };
  const auto nic = std::find_if(imported.graph.nodes.begin(), imported.graph.nodes.end(), is_nic);
  ASSERT_NE(nic, imported.graph.nodes.end());
  EXPECT_EQ(nic->name, "mlx5_0");
  EXPECT_EQ(nic->port_gb_per_s, 25);  // two ports of 100 Gbit/s
  // GPUs 0 and 1 share the uplink of their switch.
  const Hop up0 = routes.path(routes.gpus()[0], routes.gpus()[3]).hops[1],
            up1 = routes.path(routes.gpus()[1], routes.gpus()[4]).hops[1];
  EXPECT_EQ(up0, up1);
}

TEST(TopologyXml, HiddenSwitches) {
  const Imported imported = import_topology(fixture("nvswitch8.xml"));
  EXPECT_THAT(messages(imported), IsEmpty());
  const Routes routes(imported.graph);
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      if (a == b) continue;
      EXPECT_EQ(link(routes, a, b), "NVS18 370.8");
    }
  }
}

TEST(TopologyXml, AmdAndC2c) {
  const std::string text = R"(<system version="2"><cpu numaid="0">
    <pci busid="0000:01:00.0" class="0x038000"><gpu dev="0" sm="304" gcn="gfx942:sramecc+" rank="0">
      <xgmi target="0000:02:00.0" count="1" tclass="0x038000"/></gpu></pci>
    <pci busid="0000:02:00.0" class="0x038000"><gpu dev="1" sm="304" gcn="942" rank="1">
      <xgmi target="0000:01:00.0" count="1" tclass="0x038000"/></gpu></pci></cpu>
    <cpu numaid="1"><pci busid="0000:03:00.0" class="0x030200">
      <gpu dev="2" sm="90" rank="2"><c2c bw="44712" count="10"/></gpu></pci></cpu>
    <cpu numaid="2"><pci busid="0000:04:00.0" class="0x030200">
      <gpu dev="3" sm="90" rank="3"><c2c bw="44712" count="10"/></gpu></pci></cpu>
    </system>)";
  const Imported imported = import_topology(text, "text");
  EXPECT_THAT(messages(imported), IsEmpty());
  const Routes routes(imported.graph);
  EXPECT_EQ(link(routes, 0, 1), "XGMI1 48");
  EXPECT_EQ(link(routes, 2, 3), "SYS 8");
  EXPECT_TRUE(std::any_of(imported.graph.edges.begin(), imported.graph.edges.end(), [](const Edge& edge) {
    return edge.kind == LinkKind::c2c && edge.lanes == 10 && edge.gb_per_s == 447.12 && edge.bandwidth_from == Origin::imported;
  }));
}

TEST(TopologyXml, HostsAreToldApart) {
  const std::string text = R"(<system version="1">
    <cpu numaid="0" host_hash="0xa"><pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="100" rank="0">
      <nvlink target="0000:09:00.0" count="18" tclass="0x068000"/></gpu></pci></cpu>
    <cpu numaid="0" host_hash="0xb"><pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="100" rank="1">
      <nvlink target="0000:09:00.0" count="18" tclass="0x068000"/></gpu></pci></cpu></system>)";
  const Imported imported = import_topology(text, "text");
  const Routes routes(imported.graph);
  ASSERT_EQ(routes.gpus().size(), 2u);
  EXPECT_EQ(imported.graph.nodes[static_cast<std::size_t>(routes.gpus()[1])].name, "host1/gpu0");
  EXPECT_EQ(link(routes, 0, 1), "NVS18 721.8");
}

TEST(TopologyXml, StrangeLinksAreWarningsWithTheirLine) {
  const std::string good = text_of(fixture("bridge_pairs.xml"));
  const auto warnings = [&](const std::string& what, const std::string& by) {
    return messages(import_topology(replaced(good, what, by), "text"));
  };
  const std::string first = R"(target="0000:41:00.0" count="4")";
  EXPECT_THAT(
      warnings(first, R"(target="0000:01:00.0" count="4")"),
      ElementsAre("5: gpu0 lists a link to itself: ignored", "15: gpu2 lists a link to gpu0, which lists none back: ignored"));
  EXPECT_THAT(warnings(first, R"(target="0000:99:00.0" count="4")"),
              Contains(AllOf(HasSubstr("5: gpu0"), HasSubstr("not a GPU in this file"))));
  EXPECT_THAT(warnings(first, R"(target="0000:41:00.0" count="2")"),
              ElementsAre(AllOf(HasSubstr("2 lanes to gpu2"), HasSubstr("4 back"))));
  EXPECT_THAT(warnings(R"(sm="86" rank="0")", R"(sm="86")"), ElementsAre("4: gpu0 has no rank: NCCL ignores it, kept"));
  EXPECT_THAT(warnings("<gpu dev=\"0\"", "<tpu/><gpu dev=\"0\""), ElementsAre("4: <tpu> inside <pci> is not known: ignored"));
  EXPECT_THAT(warnings("</gpu>", "</gpu><gpu dev=\"4\" sm=\"86\" rank=\"4\"/>"),
              ElementsAre("6: gpu4 is at the PCI address of another <gpu>: links to there are taken as the first one's"));
  // The same without a class of its target: a device that is not there is an NVSwitch.
  EXPECT_THAT(warnings(R"(target="0000:41:00.0" count="4" tclass="0x030000")", R"(target="0000:99:00.0" count="4")"),
              Contains(HasSubstr("taken for an NVSwitch")));
  const Routes routes(import_topology(replaced(good, first, R"(target="0000:01:00.0" count="4")"), "text").graph);
  EXPECT_EQ(link(routes, 0, 2), "PHB 12");
  EXPECT_EQ(link(routes, 1, 3), "NV4 48");
}

TEST(TopologyXml, PciLinksMustBeMutual) {
  const std::string good = text_of(fixture("two_sockets.xml"));
  const std::string text = replaced(good, R"(<pcilink target="0000:20:00.0"/>)", R"(<pcilink target="0000:10:00.0"/>)");
  EXPECT_THAT(messages(import_topology(text, "text")),
              ElementsAre("4: <pcilink> of 0000:10:00.0 to itself: ignored",
                          "19: <pcilink> to 0000:10:00.0, which lists none back: ignored"));
  EXPECT_EQ(link(Routes(import_topology(text, "text").graph), 0, 2), "PHB 12");
}

TEST(TopologyXml, BrokenFilesAreRefusedWithTheirLine) {
  const std::string good = text_of(fixture("bridge_pairs.xml"));
  const auto broken = [&](const std::string& what, const std::string& by) { return refusal(replaced(good, what, by)); };
  EXPECT_EQ(refusal(good), nothing_thrown);
  EXPECT_THAT(broken("version=\"1\"", "version=\"3\""), AllOf(HasSubstr("line 1"), HasSubstr("versions 1 and 2")));
  EXPECT_THAT(broken("<system version=\"1\">", "<system>"), HasSubstr("no attribute version"));
  EXPECT_THAT(broken("<system version=\"1\">", "<graphs version=\"1\">"), HasSubstr("not well-formed"));
  EXPECT_THAT(broken("dev=\"1\"", "dev=\"0\""), AllOf(HasSubstr("line 9"), HasSubstr("another <gpu> with this dev")));
  EXPECT_THAT(broken("dev=\"1\"", "dev=\"one\""), AllOf(HasSubstr("line 9"), HasSubstr("whole number")));
  EXPECT_THAT(broken("dev=\"1\"", "dev=\"99999999999\""), HasSubstr("whole number"));
  EXPECT_THAT(broken("busid=\"0000:25:00.0\"", "busid=\"0000:01:00.0\""),
              AllOf(HasSubstr("line 8"), HasSubstr("another device")));
  EXPECT_THAT(broken("busid=\"0000:25:00.0\"", "busid=\"twenty-five\""), AllOf(HasSubstr("line 8"), HasSubstr("PCI address")));
  for (const char* count : {"0", "-4", "65", "2147483648", "x", ""})
    EXPECT_THAT(broken("count=\"4\"", "count=\"" + std::string(count) + "\""), HasSubstr("line 5")) << count;
  EXPECT_THAT(broken("numaid=\"0\"", "numaid=\"-2\""), HasSubstr("numaid"));
  std::string deep = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 100000; ++i)
    deep += "<pci busid=\"0000:" + std::string(i % 2 ? "1" : "2") + "0:00.0\" class=\"0x060400\">";
  EXPECT_NE(refusal(deep), nothing_thrown);
  std::string wide = "<system version=\"1\">";
  for (int cpu = 0; cpu < 5 * 1024; ++cpu) {
    const std::string host = std::to_string(cpu / 1024), node = std::to_string(cpu % 1024);
    wide += "<cpu numaid=\"" + node + "\" host_hash=\"0x" + host + "\"/>";
  }
  wide +=
      R"(<cpu numaid="0" host_hash="0xa"><pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="100" rank="0"/></pci></cpu>)";
  EXPECT_THAT(refusal(wide + "</system>"), HasSubstr("its <cpu> have more than 1048576 links"));
  std::string nested = "<system version=\"1\"><cpu numaid=\"0\">", ends;
  for (int i = 0; i < 200; ++i) {
    const char digits[] = {"0123456789abcdef"[i / 16], "0123456789abcdef"[i % 16], 0};
    nested += "<pci busid=\"0000:" + std::string(digits) + ":00.0\" class=\"0x060400\">";
    ends += "</pci>";
  }
  EXPECT_THAT(refusal(nested + ends + "</cpu></system>"), HasSubstr("inside each other"));
}

TEST(TopologyXml, TemplatesHaveNoGpus) {
  EXPECT_THAT(refusal(R"(<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200"/></cpu></system>)"),
              AllOf(HasSubstr("no <gpu> element"), HasSubstr("template"), HasSubstr("NCCL_TOPO_DUMP_FILE")));
}

TEST(TopologyMatrix, Dgx1v) {
  const Imported imported = import_topology(fixture("dgx1v.txt"));
  EXPECT_EQ(imported.format, "topo-m");
  EXPECT_THAT(messages(imported), IsEmpty());
  const Routes routes(imported.graph);
  EXPECT_EQ(link(routes, 0, 3), "NV2 41.2");
  EXPECT_EQ(link(routes, 0, 1), "NV1 20.6");
  EXPECT_EQ(link(routes, 0, 5), "SYS 8");
  EXPECT_EQ(link(routes, 7, 6), "NV2 41.2");
}

TEST(TopologyMatrix, LabelsSpacesAndColours) {
  const std::string text =
      "user@host:~$ nvidia-smi topo -m\r\n"
      "        \x1b[4mGPU0    GPU1    GPU2    GPU5    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\x1b[0m\r\n"
      "GPU0     X      PIX     PXB     SYS     NODE    0-31    0               N/A\r\n"
      "GPU1    PIX      X      PXB     SYS     NODE    0-31    0               N/A\r\n"
      "GPU2    PXB     PXB      X      SYS     NODE    0-31    0               N/A\r\n"
      "GPU5    SYS     SYS     SYS      X      SYS     32-63   1               N/A\r\n"
      "NIC0    NODE    NODE    NODE    SYS      X\r\n\r\nLegend:\r\n";
  const Imported imported = import_topology(text, "text");
  EXPECT_THAT(messages(imported), ElementsAre(HasSubstr("calls 0 1 2 5 count from 0")));
  const Routes routes(imported.graph);
  EXPECT_EQ(link(routes, 0, 1), "PIX 12");
  EXPECT_EQ(link(routes, 0, 2), "PXB 12");
  EXPECT_EQ(link(routes, 0, 3), "SYS 8");
  EXPECT_EQ(imported.graph.nodes[static_cast<std::size_t>(routes.gpus()[3])].index, 3);
  EXPECT_EQ(imported.graph.nodes[static_cast<std::size_t>(routes.gpus()[3])].numa, 1);
}

TEST(TopologyMatrix, MoreLanesThanAGpuHasAreThoseToASwitch) {
  const auto matrix = [](int lanes) {
    const std::string nv = "NV" + std::to_string(lanes);
    return "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\t X \t" + nv + "\t" + nv + "\t" + nv + "\t0-7\nGPU1\t" + nv +
           "\t X \t" + nv + "\t" + nv + "\t0-7\nGPU2\t" + nv + "\t" + nv + "\t X \t" + nv + "\t8-15\nGPU3\t" + nv + "\t" + nv +
           "\t" + nv + "\t X \t8-15\n";
  };
  EXPECT_EQ(link(Routes(import_topology(matrix(12), "text").graph), 0, 3), "NVS12 247.2");
  EXPECT_EQ(link(Routes(import_topology(matrix(6), "text").graph), 0, 3), "NV6 123.6");  // 3 times 6 are the 18 of an H100
}

TEST(TopologyMatrix, ContradictionsAreWarnings) {
  const std::string good = text_of(fixture("dgx1v.txt"));
  const auto lines = [&](const std::string& what, const std::string& by) {
    return messages(import_topology(replaced(good, what, by), "text"));
  };
  EXPECT_THAT(lines("GPU0\t X \tNV1", "GPU0\t X \tSOC"),
              Contains(AllOf(HasSubstr("4: GPU0 and GPU1"), HasSubstr("only one of them"))));
  EXPECT_THAT(lines("GPU0\t X \tNV1", "GPU0\t X \tNV2"), ElementsAre(HasSubstr("the lower one is used")));
  EXPECT_THAT(lines("GPU0\t X ", "GPU0\tNV1"), ElementsAre("3: GPU0 lists a link to itself: ignored"));
  EXPECT_THAT(lines("PIX\tSOC\t0-19", "PHB\tSOC\t0-19"), Contains(HasSubstr("the longer one is used")));
  const Imported one_way = import_topology(replaced(good, "GPU0\t X \tNV1", "GPU0\t X \tSOC"), "text");
  EXPECT_EQ(link(Routes(one_way.graph), 0, 1), "PIX 12");  // they are both PIX to the NIC
}

TEST(TopologyMatrix, BrokenTextIsRefusedWithItsLine) {
  const std::string good = text_of(fixture("dgx1v.txt"));
  const auto broken = [&](const std::string& what, const std::string& by) { return refusal(replaced(good, what, by)); };
  EXPECT_THAT(broken("NV1", "NV0"), AllOf(HasSubstr("line 3"), HasSubstr("unknown label")));
  EXPECT_THAT(broken("NV1", "NV999999999999"), HasSubstr("unknown label"));
  EXPECT_THAT(broken("NV1", "X"), HasSubstr("two devices"));
  EXPECT_THAT(broken("GPU0\tGPU1\tGPU2", "GPU0\tGPU1\tGPU1"), AllOf(HasSubstr("line 2"), HasSubstr("already a column")));
  EXPECT_THAT(broken("\nGPU3", "\nGPU9"), AllOf(HasSubstr("line 6"), HasSubstr("no column")));
  EXPECT_THAT(broken("\nGPU3", "\nGPU2"), AllOf(HasSubstr("line 6"), HasSubstr("second row")));
  EXPECT_THAT(refusal(good.substr(0, good.find("GPU7\t"))), HasSubstr("complete?"));
  EXPECT_THAT(refusal("hello\n"), HasSubstr("no topology"));
  EXPECT_THAT(refusal(" \n\n"), HasSubstr("empty"));
}

TEST(TopologyJson, GivesTheSameGraphBack) {
  for (const char* name : {"dgx1v.txt", "bridge_pairs.xml", "two_sockets.xml", "nvswitch8.xml", "rails_2x4.json"}) {
    const Graph graph = import_topology(fixture(name)).graph;
    const Imported again = import_topology(to_json_text(graph), "text");
    EXPECT_EQ(again.format, "plait-json");
    EXPECT_EQ(again.graph, graph) << name;
    EXPECT_EQ(import_topology(to_json(graph).dump(), "text").graph, graph) << name;
  }
}

TEST(TopologyJson, BrokenFilesAreRefusedWithTheirLine) {
  const std::string good = text_of(fixture("rails_2x4.json"));
  const auto broken = [&](const std::string& what, const std::string& by) { return refusal(replaced(good, what, by)); };
  EXPECT_EQ(refusal(good), nothing_thrown);
  EXPECT_THAT(broken("plait-topology", "plaid-topology"), HasSubstr("plait-topology"));
  EXPECT_THAT(broken("\"version\": 1", "\"version\": 2"), HasSubstr("version"));
  EXPECT_THAT(broken("\"kind\": \"nvswitch\"", "\"kind\": \"nvswatch\""),
              AllOf(HasSubstr("nodes[1].kind"), HasSubstr("line 5"), HasSubstr("pcie_switch")));
  EXPECT_THAT(broken("h0gpu1", "h0gpu0"), AllOf(HasSubstr("line 9"), HasSubstr("another node has this name")));
  EXPECT_THAT(broken("\"index\": 1", "\"index\": 0"), AllOf(HasSubstr("line 9"), HasSubstr("another GPU")));
  EXPECT_THAT(broken("\"index\": 1", "\"index\": 1e9"), HasSubstr("whole number"));
  EXPECT_THAT(broken("\"index\": 1", "\"index\": 18446744073709551615"), HasSubstr("whole number"));
  EXPECT_THAT(broken("\"b\": \"h0nvs\"", "\"b\": \"h0gpu0\""), AllOf(HasSubstr("edges[0].b"), HasSubstr("one to itself")));
  EXPECT_THAT(broken("\"b\": \"h0nvs\"", "\"b\": \"nowhere\""), HasSubstr("no node has this name"));
  for (const char* figure : {"0", "-1", "1e300", "\"fast\"", "null"})
    EXPECT_THAT(broken("\"gb_per_s\": 370.8", "\"gb_per_s\": " + std::string(figure)), HasSubstr("edges[0].gb_per_s"))
        << figure;
  EXPECT_THAT(broken("\"lanes\": 18", "\"lanes\": 65"), HasSubstr("edges[0].lanes"));
  EXPECT_THAT(broken("\"lanes\": 18", "\"lane\": 18"), HasSubstr("unknown key"));
  EXPECT_THAT(broken("\"lanes\": 18", "\"lanes\": 18, \"lanes\": 18"), HasSubstr("twice"));
  EXPECT_THAT(broken("\"to\": \"h0gpu1\"", "\"to\": \"h0nvs\""), HasSubstr("must be a GPU"));
  EXPECT_THAT(broken("\"to\": \"h0gpu1\"", "\"to\": \"h0gpu0\""), HasSubstr("two GPUs"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("no topology"));
  EXPECT_THAT(refusal("{\"nodes\": " + std::string(100000, '[')), HasSubstr("that deep"));
  EXPECT_THAT(refusal("{}"), HasSubstr("is missing"));
  EXPECT_THAT(refusal("{\"format\": \"plait-topology\", \"version\": 1, \"nodes\": []}"), HasSubstr("no GPU"));
}

// Cut anywhere, a file is refused, or what is left still is a topology (a legend, or the last cell's affinity, is not missed);
// with any byte changed it never does worse.
TEST(TopologyImport, DamagedFilesNeverCrash) {
  const std::string xml = text_of(fixture("bridge_pairs.xml")), matrix = text_of(fixture("dgx1v.txt"));
  for (const std::string& good : {xml, matrix, to_json_text(import_topology(xml, "text").graph)}) {
    // Of the matrix all rows of GPUs must be there, of the others all of the text.
    const std::size_t last_row = good.find("\nGPU7");
    const std::size_t needed = last_row == std::string::npos ? good.find_last_not_of("\n") : last_row;
    for (std::size_t size = 0; size < needed; ++size) EXPECT_THAT(refusal(good.substr(0, size)), HasSubstr("line ")) << size;
    for (std::size_t size = needed; size < good.size(); ++size) refusal(good.substr(0, size));
    constexpr std::array bytes = {'\0', '"', '9', '\xff', '\n'};
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string changed = good;
      changed[i] = bytes[i % bytes.size()];
      const std::string why = refusal(changed);
      if (why != nothing_thrown) {
        EXPECT_THAT(why, HasSubstr("line ")) << i;
      }
    }
  }
}

TEST(TopologyImport, AMissingFileIsNamed) {
  try {
    import_topology("/nowhere/topology.xml");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/nowhere/topology.xml"), HasSubstr("cannot be read")));
  }
  EXPECT_THROW(import_topology("/"), ConfigError);
  EXPECT_THROW(import_topology("/dev/zero"), ConfigError) << "without reading it";
}

}  // namespace
}  // namespace plait::topology
