#include "topology/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "test_paths.h"
#include "topology/topology_json.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using test::read;
using testing::HasSubstr;

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) found.push_back(line);
  return found;
}

// The matrix that is drawn is one that can be pasted: it says the same again.
TEST(TopologyDraw, TheMatrixReadsBackAsTheSameLinks) {
  for (const char* name : {"dgx1v.txt", "bridge_pairs.xml", "two_sockets.xml"}) {
    SCOPED_TRACE(name);
    const Graph graph = read(name).graph;
    const Graph again = import_topology(draw_matrix(graph, {}), "drawn").graph;
    const Routes one(graph), other(again);
    ASSERT_EQ(one.gpus().size(), other.gpus().size());
    for (std::size_t a = 0; a < one.gpus().size(); ++a) {
      for (std::size_t b = 0; b < one.gpus().size(); ++b)
        EXPECT_EQ(one.summary(one.gpus()[a], one.gpus()[b]).link, other.summary(other.gpus()[a], other.gpus()[b]).link)
            << a << "-" << b;
    }
  }
}

TEST(TopologyDraw, NicsHaveTheirPlaceInTheMatrix) {
  const auto rows = lines(draw_matrix(read("dgx1v.txt").graph, {}));
  EXPECT_THAT(rows[0], testing::MatchesRegex(" +GPU0 .* GPU7  NIC0  NIC1  CPU Affinity  NUMA Affinity"));
  EXPECT_THAT(rows[1], testing::MatchesRegex("GPU0 +X +NV1 +NV1 +NV2 +NV2 +SYS +SYS +SYS +PIX +SYS .*"));
  EXPECT_THAT(rows[9], testing::MatchesRegex("NIC0 +PIX +PIX +PHB +PHB +SYS +SYS +SYS +SYS +X +SYS .*"));
}

TEST(TopologyDraw, DevicesAreAtTheNumaNodeOfTheirTreeEvenWithoutNumbers) {
  const auto rows = lines(describe_numa_nodes(read("dgx1v.txt").graph, {}));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(rows[1], testing::EndsWith(": GPU0 GPU1 GPU2 GPU3; mlx5_0"));
  EXPECT_THAT(rows[2], testing::EndsWith(": GPU4 GPU5 GPU6 GPU7; mlx5_1"));
}

// New matrices have both columns of affinity.
TEST(TopologyDraw, ProcessorsOfAPastedMatrixAreKept) {
  const std::string text = "     GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0  X   SYS  0-7 0\nGPU1 SYS  X  8-15 1\n";
  const Imported imported = import_topology(text, "pasted");
  EXPECT_EQ(imported.machine.cpus, (std::vector<NumaCpus>{{0, "0-7", 0}, {1, "8-15", 0}}));
  EXPECT_EQ(import_topology(draw_matrix(imported.graph, imported.machine), "drawn").machine, imported.machine);
}

TEST(TopologyDraw, PairsAndCliquesAreNamed) {
  const std::string cube = describe_nvlinks(read("dgx1v.txt").graph);
  EXPECT_THAT(cube, HasSubstr("pairs NV2 (41.2 GB/s nominal): GPU0-GPU3 GPU0-GPU4"));
  EXPECT_THAT(cube, HasSubstr("all linked to each other: GPU0 GPU1 GPU2 GPU3"));
  EXPECT_THAT(describe_nvlinks(read("two_sockets.xml").graph), HasSubstr("NVLink: none"));
  EXPECT_THAT(describe_nvlinks(read("nvswitch8.xml").graph),
              HasSubstr("all linked to each other: GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7"));
}

TEST(TopologyDraw, EveryFigureSaysWhereItIsFrom) {
  Graph graph = read("bridge_pairs.xml").graph;
  EXPECT_THAT(draw_bandwidths(graph), HasSubstr("GB/s in one direction: nominal\n"));
  const std::vector<int> gpus = gpus_of(graph);
  graph.pairs = {{gpus[0], gpus[1], 77.25, 3.5}};
  const std::string text = draw_bandwidths(graph);
  EXPECT_THAT(text, HasSubstr("nominal, measured (m)"));
  EXPECT_THAT(text, HasSubstr("77.2m"));
  EXPECT_THAT(draw_latencies(graph), HasSubstr("3.5m"));
}

TEST(TopologyDraw, WhatTheMachineSaysOfItselfIsCheckedWhenRead) {
  const std::string good = to_json_text(read("bridge_pairs.xml").graph, {"580", {{0, "0-3", 5}}, {}, {{"a", "b", ""}}, {}});
  EXPECT_EQ(test::refusal(good), nothing_thrown);
  EXPECT_THAT(test::refusal(test::replaced(good, "\"0-3\"", "\"3-0\"")), HasSubstr("cpus"));
  EXPECT_THAT(test::refusal(test::replaced(good, "\"memory_bytes\":5", "\"memory_bytes\":-5")), HasSubstr("memory_bytes"));
  EXPECT_THAT(test::refusal(test::replaced(good, "\"about\"", "\"abuot\"")), HasSubstr("is missing: must be a string"));
  EXPECT_THAT(test::refusal(test::replaced(good, "\"580\"", "580")), HasSubstr("must be a string"));
}

TEST(TopologyDraw, TheExampleOfTheDocumentationIsRead) {
  const std::string document = test::text_of(std::string(test_paths::source) + "/docs/topology.md"), fence = "```json\n";
  const std::size_t first = document.find(fence) + fence.size();
  const Imported imported = import_topology(document.substr(first, document.find("```", first) - first), "docs/topology.md");
  EXPECT_EQ(imported.format, "plait-json");
  EXPECT_EQ(gpus_of(imported.graph).size(), 4u);
  EXPECT_EQ(imported.graph.pairs.size(), 1u);
}

TEST(TopologyDraw, WithoutGpusOnlyWhereThatIsAskedFor) {
  const std::string text =
      R"({"format": "plait-topology", "version": 1, "nodes": [{"name": "numa0", "kind": "numa", "numa": 0}]})";
  EXPECT_THAT(test::refusal(text), HasSubstr("no GPU"));
  EXPECT_EQ(import_topology(text, "file", GpusNeeded::no).graph.nodes.size(), 1u);
  EXPECT_THROW(import_topology(test::replaced(text, "\"numa0\"", "\"\\u00ff\\ud800\""), "file", GpusNeeded::no), ConfigError);
  EXPECT_THAT(describe("x", import_topology(text, "file", GpusNeeded::no).graph, {}, {}), HasSubstr("0: no GPU"));
}

// A row of the whole matrix is those of the parts put together.
TEST(TopologyDraw, AMatrixWiderThanTheTerminalIsDrawnInParts) {
  const Graph graph = read("dgx1v.txt").graph;
  const auto cells_of = [](const std::string& text, const std::string& label) {
    std::string cells;
    for (const std::string& line : lines(text)) {
      std::istringstream words(line);
      std::string word;
      if (!line.starts_with(label + " ") || !(words >> word)) continue;
      while (words >> word) cells += word + " ";
    }
    return cells;
  };
  const std::string whole = draw_matrix(graph, {});
  for (const int width : {25, 40, 60, 79}) {
    const std::string parts = draw_matrix(graph, {}, width);
    EXPECT_NE(parts, whole);
    for (const std::string& line : lines(parts.substr(0, parts.find("  NIC0 mlx"))))
      EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    EXPECT_EQ(cells_of(parts, "GPU3"), cells_of(whole, "GPU3"));
  }
}

}  // namespace
}  // namespace plait::topology
