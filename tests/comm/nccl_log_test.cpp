// NCCL's log as NCCL 2.28.9 writes it: what is read out of it, and where it comes from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "child_process.h"
#include "comm/nccl_environment.h"
#include "core/device.h"
#include "core/error.h"
#include "core/temporary_directory.h"
#include "environment_variable.h"

namespace plait::comm {
namespace {

using plait::test::EnvironmentVariable;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two GPUs of one process, a thread each.
constexpr const char* two_threads = R"(gpu-a:4711:4720 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
gpu-a:4711:4720 [0] NCCL INFO ncclCommInitRankConfig comm 0xbca552dd2650 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x3470ca318760efc8 - Init START
gpu-a:4711:4720 [0] NCCL INFO comm 0xbca552dd2650 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0
gpu-a:4711:4720 [0] NCCL INFO Channel 00/24 : 0 1
gpu-a:4711:4720 [0] NCCL INFO Channel 01/24 : 0 1
gpu-a:4711:4720 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
gpu-a:4711:4721 [1] NCCL INFO Trees [0] -1/-1/-1->1->0 [1] -1/-1/-1->1->0
gpu-a:4711:4720 [0] NCCL INFO Check P2P Type isAllDirectP2p 1 directMode 1 isAllCudaP2p 1
gpu-a:4711:4730 [0] NCCL INFO [Proxy Service] Device 0 CPU core 12
gpu-a:4711:4720 [0] NCCL INFO threadThresholds 8/8/64 | 16/8/64 | 512 | 512
gpu-a:4711:4720 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer
gpu-a:4711:4721 [1] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer
gpu-a:4711:4741 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer/read
gpu-a:4711:4740 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu-a:4711:4740 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu-a:4711:4740 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
gpu-a:4711:4741 [1] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
gpu-a:4711:4740 [0] NCCL INFO Connected all trees
gpu-a:4711:4740 [0] NCCL INFO NVLS comm 0xbca552dd2650 headRank 0 nHeads 2 nvlsRanks 2 buffSize 1048576 nvlsPerRankSize 201326592 nvlsTotalSize 402653184
)";

TEST(NcclLog, EachRankOfAProcessReadsItsOwnLines) {
  const Paths first = read_nccl_log(two_threads, {4711, 0, 0, 2});
  EXPECT_THAT(first.pairs, ElementsAre(PairPath{0, 1, Carrier::p2p, "P2P/CUMEM/read", 2}));
  EXPECT_THAT(first.algorithms, ElementsAre("ring", "tree", "nvls"));
  EXPECT_EQ(first.channels, 24);
  EXPECT_EQ(first.unknown, "");
  const Paths second = read_nccl_log(two_threads, {4711, 1, 1, 2});
  EXPECT_THAT(second.pairs, ElementsAre(PairPath{1, 0, Carrier::p2p, "P2P/direct pointer", 1}));
  EXPECT_THAT(second.algorithms, ElementsAre("ring"));
  const Paths other_process = read_nccl_log(two_threads, {471, 0, 0, 2});
  EXPECT_THAT(other_process.pairs, IsEmpty());
  EXPECT_THAT(other_process.unknown, HasSubstr("names no connection"));
}

TEST(NcclLog, TellsHostMemoryAndNetworksWithAndWithoutGpuDirect) {
  const std::string line = "host-b:192:1188 [0] NCCL INFO Channel ";
  const std::string text =
      line + "00 : 0[0] -> 1[1] via SHM/direct/direct\n" +  //
      line + "01 : 0[0] -> 1[1] via SHM/direct/direct\n" + line + "00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n" + line +
      "00/0 : 0[0] -> 4[0] [send] via NET/Socket/0\n" + line + "00/0 : 0[0] -> 8[0] [send] via NET/IB/2(3)/GDRDMA\n" + line +
      "01/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA/Shared\n" + line + "02/0 : 0[0] -> 8[0] [send] via NET/IB/0\n" +
      "[2026-11-25 02:00:00] " + line + "00/1 : 0[0] -> 3[3] via P2P/indirect/2[2]\n" +
      "host-b:192:1188 [0] NCCL INFO Connected binomial trees\n" + "host-b:192:1188 [0] NCCL INFO rank 0 Connected CollNet\n";
  const Paths paths = read_nccl_log(text, {192, 0, 0, 9});
  EXPECT_THAT(paths.pairs,
              ElementsAre(PairPath{0, 1, Carrier::shm, "SHM/direct/direct", 2}, PairPath{0, 4, Carrier::net, "NET/Socket", 1},
                          PairPath{0, 8, Carrier::gdrdma, "NET/IB/GDRDMA", 2}, PairPath{0, 8, Carrier::net, "NET/IB", 1},
                          PairPath{0, 3, Carrier::p2p, "P2P/indirect/2[2]", 1}));
  EXPECT_THAT(paths.algorithms, ElementsAre("pat", "collnet"));
}

TEST(NcclLog, WhatIsNotUnderstoodIsPassedOver) {
  const std::string line = "h:1:2 [0] NCCL INFO ";
  for (const std::string& wrong :
       {std::string("Channel 00/0 : 0[0] -> 9[1] via P2P/CUMEM"), std::string("Channel 00/0 : 0[0] -> 1[1] via "),
        std::string("Channel 99999999999/0 : 0[0] -> 1[1] via P2P/CUMEM"), std::string("Channel 00/0 : 0[0] -> 1[1]"),
        std::string("Channel 00/0 : 0[0] -> -1[1] via P2P/CUMEM"), std::string("Channel 00/0 : 0[0] -> 0[0] via P2P/CUMEM"),
        std::string("Channel 00/0 : 0[0] -> 1[1] via WARP/9"), "Channel 00/0 : 0[0] -> 1[1] via P2P/" + std::string(200, 'x'),
        std::string("Channel 00/0 : 0[0] -> 1[1] via P2P/\x01"), std::string(100'000, 'y'), std::string("Channel"),
        std::string("99999 coll channels, 0 collnet channels"), std::string()}) {
    const Paths paths = read_nccl_log(line + wrong + "\n" + line + "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n", {1, 0, 0, 2});
    EXPECT_THAT(paths.pairs, ElementsAre(PairPath{0, 1, Carrier::p2p, "P2P/IPC", 1})) << wrong.substr(0, 80);
    EXPECT_EQ(paths.channels, 0);
  }
  // Every beginning of a log is one.
  const std::string whole = two_threads;
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    for (const PairPath& path : read_nccl_log(whole.substr(0, length), {4711, 0, 0, 2}).pairs) EXPECT_EQ(path.to, 1);
  }
}

class NcclLogOfUser : public testing::Test {
 protected:
  const plait::test::TemporaryDirectory folder_;
  EnvironmentVariable level_{"NCCL_DEBUG", std::nullopt}, file_{"NCCL_DEBUG_FILE", std::nullopt},
      subsystems_{"NCCL_DEBUG_SUBSYS", std::nullopt};
};

TEST_F(NcclLogOfUser, IsReadWhereItTellsOfConnections) {
  const EnvironmentVariable level("NCCL_DEBUG", "info"), file("NCCL_DEBUG_FILE", folder_.path() + "/log-%h-%p-%%-%x");
  const NcclLog log;
  EXPECT_EQ(log.why_unread(), "");
  EXPECT_EQ(log.size(), 0u);
  std::FILE* const written =
      std::fopen((folder_.path() + "/log-" + host_name() + "-" + std::to_string(::getpid()) + "-%-%x").c_str(), "w");
  ASSERT_TRUE(written);
  std::fputs("before\n", written), std::fflush(written);
  const std::uint64_t begin = log.size();
  EXPECT_EQ(begin, 7u);
  std::fputs("after\n", written), std::fclose(written);
  EXPECT_EQ(log.since(begin), "after\n");
  EXPECT_EQ(log.since(1 << 20), "");
}

TEST_F(NcclLogOfUser, ElsewhereIsLeftAloneAndSaysWhatToDo) {
  {
    const EnvironmentVariable level("NCCL_DEBUG", "INFO");  // to standard output
    EXPECT_THAT(NcclLog().why_unread(), HasSubstr("unset NCCL_DEBUG"));
  }
  const EnvironmentVariable level("NCCL_DEBUG", "WARN"), file("NCCL_DEBUG_FILE", folder_.path() + "/log");
  EXPECT_THAT(NcclLog().why_unread(), HasSubstr("NCCL_DEBUG=INFO"));
  const EnvironmentVariable more("NCCL_DEBUG", "INFO"), network("NCCL_DEBUG_SUBSYS", "NET");
  EXPECT_THAT(NcclLog().why_unread(), HasSubstr("NCCL_DEBUG"));
}

const plait::test::ChildProcess keeps_the_log("NcclEnvironmentKeeps", [] {
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_P2P_DISABLE", "NCCL_GRAPH_REGISTER"}) ::unsetenv(name);
  settle_nccl_environment(PeerAccessUse::off);
  EXPECT_STREQ(std::getenv("NCCL_P2P_DISABLE"), "1");
  EXPECT_STREQ(std::getenv("NCCL_GRAPH_REGISTER"), "0");
  EXPECT_TRUE(is_set_for_nccl("NCCL_P2P_DISABLE"));
  EXPECT_FALSE(is_set_for_nccl("PATH"));
  const NcclLog log;
  EXPECT_EQ(log.why_unread(), "");
  std::FILE* const as_nccl_does = std::fopen(std::getenv("NCCL_DEBUG_FILE"), "w");
  if (!as_nccl_does) throw std::runtime_error("NCCL could not open its log");
  std::fputs("one\ntwo\n", as_nccl_does), std::fflush(as_nccl_does);
  EXPECT_EQ(log.since(4), "two\n");
  settle_nccl_environment(PeerAccessUse::off);
  EXPECT_EQ(log.size(), 8u);
  EXPECT_THROW(settle_nccl_environment(PeerAccessUse::automatic), ConfigError);
  ::setenv("NCCL_P2P_DISABLE", "0", 1);
  EXPECT_FALSE(is_set_for_nccl("NCCL_P2P_DISABLE"));
});

const plait::test::ChildProcess leaves_the_users("NcclEnvironmentLeaves", [] {
  ::setenv("NCCL_DEBUG", "VERSION", 1), ::setenv("NCCL_GRAPH_REGISTER", "1", 1);
  ::unsetenv("NCCL_DEBUG_FILE"), ::unsetenv("NCCL_P2P_DISABLE");
  settle_nccl_environment(PeerAccessUse::automatic);
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "VERSION");
  EXPECT_STREQ(std::getenv("NCCL_GRAPH_REGISTER"), "1");
  EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), nullptr);
  EXPECT_EQ(std::getenv("NCCL_P2P_DISABLE"), nullptr);
  EXPECT_NE(NcclLog().why_unread(), "");
});

TEST(NcclEnvironment, KeepsTheLogInMemoryAndTurnsPeerAccessOff) { EXPECT_EQ(plait::test::run_child(keeps_the_log), 0); }
TEST(NcclEnvironment, LeavesWhatTheUserHasSet) { EXPECT_EQ(plait::test::run_child(leaves_the_users), 0); }

}  // namespace
}  // namespace plait::comm
