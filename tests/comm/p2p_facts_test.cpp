#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

#include "comm/meeting.h"
#include "comm/p2p/facts.h"
#include "core/error.h"
#include "core/error_of.h"
#include "rank_processes.h"

namespace plait::comm::p2p {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EndFacts some_end() {
  EndFacts facts;
  facts.rank = 3;
  facts.process = {"545b9aaf-d47c-4a6b-bc79-5f56a7a59b23", 8385, "2515331", "4026531836", "4026531839", "4026531833"};
  facts.kind = DeviceKind::cuda;
  facts.ordinal = 2;
  facts.bus_id = "0000:1b:00.0";
  facts.name = "NVIDIA H200 = a name, with \"signs\"";
  facts.vmm = true;
  facts.why_no_fabric = "CUDA: cuMemCreate: operation not permitted (800)";
  facts.fabric_clique = "0123456789abcdef0123456789abcdef/32766";
  return facts;
}

PathFacts some_path() {
  PathFacts facts;
  facts.visible = true;
  facts.why_no_access = "the chipset does not support it";
  facts.performance_rank = 1;
  facts.nvlinks = 18;
  facts.nvswitch = true;
  facts.pcie_path = "NODE";
  facts.bridges = {{"0000:3d:00.0", 4, 1}, {"10000:ab:1f.7"}};
  return facts;
}

template <typename Facts>
Facts told(const Facts& facts) {
  return Json::parse(Json(facts).dump()).template get<Facts>();
}

TEST(P2pFacts, WordsGiveTheSameFactsBack) {
  EXPECT_EQ(told(some_end()), some_end());
  EXPECT_EQ(told(some_path()), some_path());
  EXPECT_EQ(told(PathFacts{}), PathFacts{});
  EndFacts cpu;
  cpu.process = {"host", 1, "", "", "", ""};
  EXPECT_EQ(told(cpu), cpu);
}

template <typename Facts>
std::string refusal_of(const Json& word) {
  return error_of<InvalidWord>([&] { return word.get<Facts>(); });
}

// Whatever becomes of a word on its way, a peer is refused, or means exactly what it says.
template <typename Facts>
void expect_strict(const Facts& facts) {
  const Json word(facts);
  const std::string text = word.dump();
  ASSERT_EQ(refusal_of<Facts>(word), nothing_thrown) << "the unchanged word must be accepted, or this test proves nothing";
  for (const auto& [name, value] : word.items()) {
    Json changed = word;
    changed.erase(name);
    EXPECT_THAT(refusal_of<Facts>(changed), HasSubstr("'" + name + "' is missing"));
    for (const Json& other : {Json(), Json::object(), Json(2.5), Json("two\nlines"), Json(Json::array({1}))}) {
      changed = word;
      changed[name] = other;
      EXPECT_THAT(refusal_of<Facts>(changed), HasSubstr("'" + name)) << other;
    }
  }
  Json more = word;
  more["more"] = 1;
  EXPECT_THAT(refusal_of<Facts>(more), HasSubstr("'more' is 1: unknown key"));
  for (const Json& other : {Json(), Json("text"), Json(3), Json(Json::array({word}))}) {
    EXPECT_THAT(refusal_of<Facts>(other), HasSubstr("must be an object"));
  }
  int readable = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char c : {' ', '0', '9', '-', 'x', '"', '\x7f'}) {
      std::string damaged = text;
      damaged[i] = c;
      const Json json = Json::parse(damaged, nullptr, false);
      if (json.is_discarded() || refusal_of<Facts>(json) != nothing_thrown) continue;
      ++readable;
      EXPECT_EQ(Json(json.get<Facts>()), json) << "what is accepted is what was said";
    }
  }
  EXPECT_GT(readable, 0);
}

TEST(P2pFacts, EndsAreReadStrictly) { expect_strict(some_end()); }
TEST(P2pFacts, PathsAreReadStrictly) { expect_strict(some_path()); }

TEST(P2pFacts, ValuesHaveLimits) {
  const auto end_refused = [](const std::string& field, const Json& value) {
    Json word = some_end();
    word[field] = value;
    EXPECT_THAT(refusal_of<EndFacts>(word), HasSubstr("'" + field + "'")) << value;
  };
  const auto path_refused = [](const std::string& field, const Json& value) {
    Json word = some_path();
    word[field] = value;
    EXPECT_THAT(refusal_of<PathFacts>(word), HasSubstr("'" + field)) << value;
  };
  end_refused("rank", -1);
  end_refused("rank", std::numeric_limits<std::uint64_t>::max());
  end_refused("rank", "3");
  end_refused("host", "");
  end_refused("process", 0);
  end_refused("gpu", 1);
  end_refused("ordinal", 1'000'000);
  end_refused("bus_id", "");
  end_refused("bus_id", "0000:1B:00.0");
  end_refused("bus_id", "/dev/nvidia0");
  end_refused("name", std::string(longest_word_text + 1, 'n'));
  path_refused("nvlinks", 100'000);
  path_refused("pcie_path", "node");
  const auto bridge = [](const char* bus_id, int lanes) {
    return Json{{"bus_id", bus_id}, {"nvlinks", lanes}, {"performance_rank", 0}};
  };
  path_refused("bridges", std::vector<Json>(65, bridge("0000:3d:00.0", 0)));
  path_refused("bridges", std::vector<Json>{bridge("0000:3d:00", 0)});
  const auto refusal_of_bridge = [](const Json& entry) {
    Json word = some_path();
    word["bridges"] = std::vector<Json>{entry};
    return refusal_of<PathFacts>(word);
  };
  EXPECT_THAT(refusal_of_bridge(bridge("0000:3d:00.0", -1)), HasSubstr("'bridges[0].nvlinks'"));
  EXPECT_NE(refusal_of_bridge("0000:3d:00.0"), nothing_thrown);
  Json word = some_end();
  word["name"] = std::string(longest_word_text, 'n');
  EXPECT_EQ(word.get<EndFacts>().name.size(), longest_word_text);
  word = some_end();
  word["gpu"] = false;
  EXPECT_THAT(refusal_of<EndFacts>(word), HasSubstr("'bus_id'"));
}

TEST(P2pFacts, WhatDriversSayIsMadeFitForText) {
  EXPECT_EQ(as_field("two\nlines\tand\x01more"), "two lines and more");
  EXPECT_EQ(as_field(std::string(100'000, 'a')).size(), longest_word_text);
}

TEST(P2pFacts, TellHowTwoDevicesAreLinked) {
  PathFacts path;
  EXPECT_EQ(path.link(), "unknown");
  path.pcie_path = "PHB";
  EXPECT_EQ(path.link(), "PHB");
  path.nvlinks = 4;
  EXPECT_EQ(path.link(), "NV4");
  path.nvlinks = 18;
  path.nvswitch = true;
  EXPECT_EQ(path.link(), "NV18 (switch)");
  path.same_memory = true;
  EXPECT_EQ(path.link(), "same memory");
}

TEST(P2pFacts, ABridgeIsOneThatBothEndsReach) {
  PairFacts pair;
  pair.from_sender.bridges = {{"0000:01:00.0"}, {"0000:02:00.0"}, {"0000:03:00.0"}};
  pair.from_receiver.bridges = {{"0000:03:00.0"}, {"0000:04:00.0"}, {"0000:01:00.0"}};
  EXPECT_THAT(pair.bridges(), ElementsAre("0000:01:00.0", "0000:03:00.0"));
  EXPECT_THAT(pair.best_bridges(), ElementsAre("0000:01:00.0", "0000:03:00.0"));
}

TEST(P2pFacts, TheBestBridgeIsWideOnBothSides) {
  PairFacts pair;
  pair.from_sender.bridges = {{"0000:01:00.0", 0, 2}, {"0000:02:00.0", 12, 0}, {"0000:03:00.0", 4, 1}, {"0000:04:00.0", 4, 0}};
  pair.from_receiver.bridges = {{"0000:01:00.0", 0, 2}, {"0000:02:00.0", 2, 0}, {"0000:03:00.0", 6, 0}, {"0000:04:00.0", 4, 1}};
  EXPECT_THAT(pair.bridges(), ElementsAre("0000:03:00.0", "0000:04:00.0", "0000:02:00.0", "0000:01:00.0"));
  EXPECT_THAT(pair.best_bridges(), ElementsAre("0000:03:00.0", "0000:04:00.0"));
  EXPECT_THAT(PairFacts().best_bridges(), testing::IsEmpty());
}

TEST(P2pFacts, ALinkIsWhatTheEndThatKnowsMoreSays) {
  PairFacts pair;
  pair.from_sender.pcie_path = pair.from_receiver.pcie_path = "PHB";
  EXPECT_EQ(pair.link(), "PHB");
  pair.from_receiver.nvlinks = 18;
  pair.from_receiver.nvswitch = true;
  EXPECT_EQ(pair.link(), "NV18 (switch)");
  EXPECT_EQ(pair.nvlinks(), 18);
}

TEST(P2pFacts, OfThisProcessAreTrue) {
  const EndFacts a = end_facts(0, {DeviceKind::host, 5}), b = end_facts(1, {DeviceKind::host, 6});
  EXPECT_EQ(a.kind, DeviceKind::host);
  EXPECT_EQ(a.ordinal, 5);
  EXPECT_EQ(a.process.process, ::getpid());
  EXPECT_GT(std::stoll(a.process.start), 0);
  EXPECT_EQ(a.process.host.size(), 36u) << "a boot id is a UUID: " << a.process.host;
  EXPECT_FALSE(a.process.pid_namespace.empty());
  EXPECT_EQ(told(a), a);
  const PairFacts pair{a, b, path_facts(a, b), path_facts(b, a)};
  EXPECT_TRUE(pair.same_process());
  EXPECT_TRUE(pair.same_host());
  EXPECT_EQ(pair.from_sender.link(), "same memory");
  EndFacts elsewhere = b;
  elsewhere.process.host = "another";
  EXPECT_EQ(path_facts(a, elsewhere), PathFacts{});
}

const plait::test::ChildProcess facts_of_this_process("P2pFactsAreOfThisProcess", [] {
  test::ProcessPlace place;
  const auto own = end_facts(place.rank, {DeviceKind::host, 0});
  Meeting meeting(*place.store, "facts", place.rank, 2, std::chrono::seconds(30));
  const auto ends = meeting.gather("end", own);
  const PairFacts pair{own, ends[place.rank == 0 ? 1 : 0], {}, {}};
  EXPECT_TRUE(pair.same_host());
  EXPECT_FALSE(pair.same_process());
  EXPECT_EQ(own.process.pid_namespace, pair.receiver.process.pid_namespace);
});

TEST(P2pFacts, TellProcessesApart) {
  for (const test::Ended& rank : test::run_processes(facts_of_this_process, 2)) {
    EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
  }
}

TEST(P2pFacts, OneNumberInTwoPlacesIsNotOneProcess) {
  const ProcessIdentity process = some_end().process;
  EXPECT_TRUE(process.is_same_process(process));
  const auto differs_by = [&](auto member, auto value) {
    ProcessIdentity other = process;
    other.*member = value;
    return !process.is_same_process(other);
  };
  EXPECT_TRUE(differs_by(&ProcessIdentity::host, "another"));
  EXPECT_TRUE(differs_by(&ProcessIdentity::process, 8386));
  EXPECT_TRUE(differs_by(&ProcessIdentity::start, "2515332"));
  EXPECT_TRUE(differs_by(&ProcessIdentity::pid_namespace, "4026532000"));
}

TEST(P2pFacts, OneMachineIsNotOneNetwork) {
  const ProcessIdentity process = some_end().process;
  const auto shared_with = [&](auto member, auto value) {
    ProcessIdentity other = process;
    other.*member = value;
    return process.shares_network_with(other) && other.shares_network_with(process);
  };
  EXPECT_TRUE(process.shares_network_with(process));
  EXPECT_TRUE(shared_with(&ProcessIdentity::process, 8386));
  EXPECT_TRUE(shared_with(&ProcessIdentity::pid_namespace, "4026532000"));
  EXPECT_TRUE(shared_with(&ProcessIdentity::network_namespace, "")) << "not known";
  EXPECT_FALSE(shared_with(&ProcessIdentity::network_namespace, "4026532000"));
  EXPECT_FALSE(shared_with(&ProcessIdentity::host, "another"));
}

}  // namespace
}  // namespace plait::comm::p2p
