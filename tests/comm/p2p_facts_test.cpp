#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/p2p/pair_facts.h"
#include "comm/p2p/text_fields.h"
#include "core/error.h"
#include "rank_processes.h"

namespace plait::comm::p2p {
namespace {

using testing::AllOf;
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
  facts.bridges = {"0000:3d:00.0", "10000:ab:1f.7"};
  return facts;
}

TEST(P2pFacts, TextGivesTheSameFactsBack) {
  EXPECT_EQ(end_facts_from(to_text(some_end())), some_end());
  EXPECT_EQ(path_facts_from(to_text(some_path())), some_path());
  EXPECT_EQ(path_facts_from(to_text(PathFacts{})), PathFacts{});
  EndFacts cpu;
  cpu.process = {"host", 1, "", "", "", ""};
  EXPECT_EQ(end_facts_from(to_text(cpu)), cpu);
}

// Whatever becomes of a text on its way, it is refused, or means exactly what it says.
template <typename Facts>
void expect_strict(const std::string& text, Facts (*parse)(const std::string&)) {
  const auto is_refused = [&](const std::string& changed) {
    try {
      EXPECT_EQ(to_text(parse(changed)), changed);
      return false;
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("facts of"));
      return true;
    }
  };
  ASSERT_FALSE(is_refused(text)) << "the unchanged text must be accepted, or this test proves nothing";
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_TRUE(is_refused(text.substr(0, i))) << "cut off at " << i;
    EXPECT_TRUE(is_refused(text.substr(0, i) + '\n' + text.substr(i))) << "another line at " << i;
    EXPECT_TRUE(is_refused(text.substr(0, i) + '\0' + text.substr(i + 1))) << "a zero byte at " << i;
    for (const char c : {' ', '=', '0', '9', '-', '\n', 'x', '\x7f'}) {
      std::string changed = text;
      changed[i] = c;
      static_cast<void>(is_refused(changed));
      static_cast<void>(is_refused(text.substr(0, i) + c + text.substr(i)));
    }
  }
  EXPECT_TRUE(is_refused(text + "x"));
  EXPECT_TRUE(is_refused(text + text));
  EXPECT_TRUE(is_refused(std::string(1 << 20, 'x')));
}

TEST(P2pFacts, EndsAreParsedStrictly) { expect_strict(to_text(some_end()), end_facts_from); }
TEST(P2pFacts, PathsAreParsedStrictly) { expect_strict(to_text(some_path()), path_facts_from); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(P2pFacts, ValuesHaveLimits) {
  const std::string end = to_text(some_end()), path = to_text(some_path());
  const auto expect_refused = [](const std::string& field, const auto& parse) {
    try {
      parse();
      ADD_FAILURE() << field << " was accepted";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("'" + field + "'"));
    }
  };
  const auto end_refused = [&](const std::string& field, const std::string& was, const std::string& is) {
    expect_refused(field, [&] { end_facts_from(replaced(end, field + "=" + was + "\n", field + "=" + is + "\n")); });
  };
  const auto path_refused = [&](const std::string& field, const std::string& was, const std::string& is) {
    expect_refused(field, [&] { path_facts_from(replaced(path, field + "=" + was + "\n", field + "=" + is + "\n")); });
  };
  end_refused("rank", "3", "-1");
  end_refused("rank", "3", "99999999999999999999999999");
  end_refused("rank", "3", "03");
  end_refused("rank", "3", "+3");
  end_refused("rank", "3", "");
  end_refused("rank", "3", "3 ");
  end_refused("host", some_end().process.host, "");
  end_refused("process", "8385", "0");
  end_refused("gpu", "1", "2");
  end_refused("ordinal", "2", "1000000");
  end_refused("bus_id", "0000:1b:00.0", "");
  end_refused("bus_id", "0000:1b:00.0", "0000:1B:00.0");
  end_refused("bus_id", "0000:1b:00.0", "/dev/nvidia0");
  end_refused("name", some_end().name, std::string(FieldReader::longest_value + 1, 'n'));
  path_refused("nvlinks", "18", "100000");
  path_refused("pcie_path", "NODE", "node");
  path_refused("bridges", "2", "1000000000");
  path_refused("bridge", "0000:3d:00.0", "0000:3d:00");
  EXPECT_EQ(end_facts_from(replaced(end, some_end().name, std::string(FieldReader::longest_value, 'n'))).name.size(),
            FieldReader::longest_value);
  expect_refused("bus_id", [&] { end_facts_from(replaced(end, "gpu=1", "gpu=0")); });
}

TEST(P2pFacts, WhatDriversSayIsMadeFitForText) {
  EXPECT_EQ(as_field("two\nlines\tand\x01more"), "two lines and more");
  EXPECT_EQ(as_field(std::string(100'000, 'a')).size(), FieldReader::longest_value);
  FieldWriter fields;
  EXPECT_THROW(fields.text("name", "two\nlines"), InternalError);
  fields.text("name", as_field("two\nlines"));
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
  pair.from_sender.bridges = {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"};
  pair.from_receiver.bridges = {"0000:03:00.0", "0000:04:00.0", "0000:01:00.0"};
  EXPECT_THAT(pair.bridges(), ElementsAre("0000:01:00.0", "0000:03:00.0"));
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
  EXPECT_EQ(end_facts_from(to_text(a)), a);
  const PairFacts pair{a, b, path_facts(a, b), path_facts(b, a)};
  EXPECT_TRUE(pair.same_process());
  EXPECT_TRUE(pair.same_host());
  EXPECT_EQ(pair.from_sender.link(), "same memory");
  EndFacts elsewhere = b;
  elsewhere.process.host = "another";
  EXPECT_EQ(path_facts(a, elsewhere), PathFacts{});
}

TEST(P2pFactsChild, DISABLED_AreOfThisProcess) {
  test::ProcessPlace place;
  const auto own = end_facts(place.rank, {DeviceKind::host, 0});
  const std::string other = place.rank == 0 ? "1" : "0";
  place.store->set(std::to_string(place.rank), to_text(own));
  const PairFacts pair{own, end_facts_from(place.store->get(other, std::chrono::seconds(30))), {}, {}};
  EXPECT_TRUE(pair.same_host());
  EXPECT_FALSE(pair.same_process());
  EXPECT_EQ(own.process.pid_namespace, pair.receiver.process.pid_namespace);
}

TEST(P2pFacts, TellProcessesApart) {
  for (const test::Ended& rank : test::run_processes("P2pFactsChild.DISABLED_AreOfThisProcess", 2)) {
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

}  // namespace
}  // namespace plait::comm::p2p
