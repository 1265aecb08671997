// What people paste as the output of `nvidia-smi topo -m`: from terminals, web pages and issue trackers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology_files.h"

namespace plait::topology {
namespace {

using test::link;
using test::messages;
using test::refusal;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

const Node& gpu_of(const Imported& imported, std::size_t number) {
  return imported.graph.nodes[static_cast<std::size_t>(gpus_of(imported.graph)[number])];
}

std::string cpus_of(const Imported& imported, int numa) {
  for (const NumaCpus& cpus : imported.machine.cpus) {
    if (cpus.numa == numa) return cpus.cpus;
  }
  return "";
}

// Three GPUs, the last on another node, with these separators and this heading of affinity.
std::string three(const std::string& between, const std::string& titles, const std::string& first, const std::string& last) {
  std::string text = between + "GPU0" + between + "GPU1" + between + "GPU2" + between + titles + "\n";
  text += "GPU0" + between + "X" + between + "PIX" + between + "SYS" + between + first + "\n";
  text += "GPU1" + between + "PIX" + between + "X" + between + "SYS" + between + first + "\n";
  text += "GPU2" + between + "SYS" + between + "SYS" + between + "X" + between + last + "\n";
  return text;
}

TEST(PastedMatrix, OneColumnOfNumaNodes) {
  for (const char* between : {"\t", "    ", "\t  ", "  \t"}) {
    const Imported alone = import_topology(three(between, "NUMA", "0", "1"), "text");
    EXPECT_THAT(messages(alone), IsEmpty());
    EXPECT_EQ(gpu_of(alone, 1).numa, 0);
    EXPECT_EQ(gpu_of(alone, 2).numa, 1);
    EXPECT_EQ(link(Routes(alone.graph), 0, 1), "PIX 12");
    const Imported behind = import_topology(three(between, "CPU Affinity  NUMA", "0-7  0", "8-15  1"), "text");
    EXPECT_EQ(gpu_of(behind, 2).numa, 1);
    EXPECT_EQ(cpus_of(behind, 1), "8-15");
  }
}

TEST(PastedMatrix, TabsAndBlanksMayBeMixedInALine) {
  const std::string text =
      "\tGPU0  GPU1\tGPU2    mlx5_bond_0 CPU Affinity\tNUMA Affinity   GPU NUMA ID\n"
      "GPU0\t X   NV4 \tSYS \t PIX  0-31,64-95   0\t\tN/A\n"
      "GPU1  NV4 \t X\tSYS PIX\t0-31,64-95\t 0  N/A\n"
      "GPU2 SYS SYS   X \tSYS\t\t32-63,96-127\t1\tN/A\n"
      "mlx5_bond_0\tPIX PIX\tSYS  X\t\t\n";
  const Imported imported = import_topology(text, "text");
  EXPECT_THAT(messages(imported), IsEmpty());
  EXPECT_EQ(link(Routes(imported.graph), 0, 1), "NV4 82.4");
  EXPECT_EQ(link(Routes(imported.graph), 1, 2), "SYS 8");
  EXPECT_EQ(cpus_of(imported, 0), "0-31,64-95");
  EXPECT_EQ(cpus_of(imported, 1), "32-63,96-127");
}

// As WSL 2 prints it: affinity is empty.
TEST(PastedMatrix, EmptyColumnsStayEmpty) {
  for (const char* row : {"GPU0\t X \t\t\t\tN/A\n", "GPU0     X                              N/A\n"}) {
    const Imported imported = import_topology(std::string("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n") + row, "text");
    EXPECT_THAT(messages(imported), IsEmpty());
    EXPECT_EQ(gpu_of(imported, 0).numa, -1);
    EXPECT_THAT(imported.machine.cpus, IsEmpty());
  }
  const Imported numa = import_topology("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\tX\t\t3\n", "text");
  EXPECT_EQ(gpu_of(numa, 0).numa, 3);
}

TEST(PastedMatrix, CellsThatRanTogetherAreTakenApart) {
  const std::string text =
      "        GPU0    GPU1    NIC8    NIC9    NIC10NIC11  CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
      "GPU0     X      NV12    PIX     PIXNODE NODE    0-7     0               N/A\n"
      "GPU1     NV12X  NODENODEPIXPIX  0-7     0N/A\n"
      "NIC8PIXNODE     X       PIX     NODE    NODE\n"
      "NIC9    PIX     NODE    PIXX    NODE    NODE\n"
      "NIC10   NODE    PIX     NODE    NODE     X PIX\n"
      "NIC11   NODE    PIX     NODE    NODEPIXX\n";
  const Imported imported = import_topology(text, "text");
  EXPECT_THAT(messages(imported), IsEmpty());
  EXPECT_EQ(link(Routes(imported.graph), 0, 1), "NV12 247.2");
  EXPECT_EQ(gpu_of(imported, 1).numa, 0);
  int nics = 0;
  for (const Node& node : imported.graph.nodes) nics += node.kind == NodeKind::nic;
  EXPECT_EQ(nics, 4);
}

// Copied from a web page, with no blank at all; the heading too.
TEST(PastedMatrix, AWholeRowMayBeOneWord) {
  const std::string text =
      "GPU0GPU1GPU2CPU AffinityNUMA AffinityGPU NUMA ID\n"
      "GPU0XNV4SYS0-31,64-950N/A\nGPU1NV4XSYS0-31,64-950N/A\nGPU2SYSSYSX32-63,96-1271N/A\n";
  // No range ends at 9 or 12 where it starts at 64 or 96.
  const Imported imported = import_topology(text, "text");
  EXPECT_THAT(messages(imported), IsEmpty());
  EXPECT_EQ(link(Routes(imported.graph), 0, 1), "NV4 82.4");
  EXPECT_EQ(cpus_of(imported, 0), "0-31,64-95");
  EXPECT_EQ(gpu_of(imported, 2).numa, 1);
  EXPECT_THAT(refusal("GPU0GPU1CPU AffinityNUMA AffinityGPU NUMA ID\nGPU0XNODE0-310N/A\nGPU1NODEX0-310N/A\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("'NODE, CPU affinity 0-31, NUMA affinity 0'"),
                    HasSubstr("'NODE, CPU affinity 0-3, NUMA affinity 10'")));
}

TEST(PastedMatrix, TwoReadingsAreRefusedWithBoth) {
  const auto row = [](const std::string& last) {
    return "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X NV12 0-31 0\nGPU1 NV12 X " + last + "\n";
  };
  EXPECT_EQ(refusal(row("0-31 0")), nothing_thrown);
  EXPECT_THAT(refusal(row("0-310")), AllOf(HasSubstr("line 3"), HasSubstr("'X, CPU affinity 0-310, NUMA affinity missing'"),
                                           HasSubstr("'X, CPU affinity 0-3, NUMA affinity 10'")));
  EXPECT_THAT(refusal(row("0-31,640")), HasSubstr("two readings"));
  const std::string lanes = "GPU0 GPU1 CPU Affinity\nGPU0 X NV120-31\nGPU1 NV12 X 0-31\n";
  EXPECT_THAT(refusal(lanes), AllOf(HasSubstr("line 2"), HasSubstr("'NV12, CPU affinity 0-31, NUMA affinity missing'"),
                                    HasSubstr("'NV1, CPU affinity 20-31, NUMA affinity missing'")));
  // Here no number of lanes but 4 leaves a list of processors.
  EXPECT_EQ(refusal("GPU0 GPU1 CPU Affinity\nGPU0 X NV40-31\nGPU1 NV4 X0-31\n"), nothing_thrown);
}

TEST(PastedMatrix, CellsWithoutAReadingAreRefused) {
  const auto row = [](const std::string& cells) { return "GPU0 GPU1 NIC0\nGPU0 X " + cells + "\nGPU1 PIX X PIX\n"; };
  EXPECT_EQ(refusal(row("PIXNODE")), nothing_thrown);
  EXPECT_THAT(refusal(row("PIXMODE")), AllOf(HasSubstr("line 2"), HasSubstr("PIXMODE"), HasSubstr("unknown label")));
  EXPECT_THAT(refusal(row("PIXNODENODE")), AllOf(HasSubstr("line 2"), HasSubstr("no reading")));
  EXPECT_THAT(refusal(row("PIX")), AllOf(HasSubstr("line 2"), HasSubstr("2 of 3 cells")));
}

TEST(PastedMatrix, MarkdownTables) {
  const std::string text =
      "| | GPU0 | GPU1 | GPU2 | CPU Affinity | NUMA Affinity | GPU NUMA ID |\n|---|---|---|:---|---|---|---|\n"
      "| GPU0 | X | NODE\xc2\xa0| SYS | 0-31 | 0 | N/A |\n| GPU1 | NODE | X | SYS | 0-31 | 0 | N/A |\n"
      "| GPU2 | SYS | SYS | X | 32-63 | 1 | N/A |\n";
  const Imported imported = import_topology(text, "text");
  EXPECT_THAT(messages(imported), IsEmpty());
  EXPECT_EQ(link(Routes(imported.graph), 0, 1), "NODE 12");
  EXPECT_EQ(gpu_of(imported, 2).numa, 1);
  EXPECT_EQ(cpus_of(imported, 0), "0-31");
}

TEST(PastedMatrix, GapsInNumbersAreClosed) {
  const Imported imported = import_topology("GPU1 GPU4 GPU6\nGPU1 X NV4 SYS\nGPU4 NV4 X SYS\nGPU6 SYS SYS X\n", "text");
  EXPECT_THAT(messages(imported), testing::ElementsAre(HasSubstr("calls 1 4 6 count from 0")));
  EXPECT_EQ(gpu_of(imported, 1).index, 1);
  EXPECT_EQ(gpu_of(imported, 1).name, "gpu1");
  EXPECT_EQ(link(Routes(imported.graph), 0, 1), "NV4 82.4");
  const std::string xml = test::replaced(test::text_of(test::fixture("bridge_pairs.xml")), "dev=\"1\"", "dev=\"9\"");
  const Imported from_xml = import_topology(xml, "text");
  EXPECT_THAT(messages(from_xml), testing::ElementsAre(HasSubstr("calls 0 2 3 9 count from 0")));
  EXPECT_EQ(gpu_of(from_xml, 3).index, 3);
  EXPECT_EQ(gpu_of(from_xml, 3).name, "gpu3");
  EXPECT_EQ(gpu_of(from_xml, 3).bus_id, "0000:25:00.0");
}

}  // namespace
}  // namespace plait::topology
