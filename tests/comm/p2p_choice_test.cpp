// The choice of a transport, as a table of the machines that there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/meeting.h"
#include "comm/p2p/choice.h"
#include "core/error.h"
#include "core/error_of.h"

namespace plait::comm::p2p {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

EndFacts gpu(int rank, const std::string& bus_id) {
  EndFacts facts;
  facts.rank = rank;
  facts.process = {"host-a", 100, "1000", "4026531836", "4026531839", "4026531833"};
  facts.kind = DeviceKind::cuda;
  facts.ordinal = rank;
  facts.bus_id = bus_id;
  facts.name = "NVIDIA H200";
  facts.vmm = true;
  return facts;
}

PathFacts nvlink() {
  PathFacts path;
  path.visible = path.peer_access = path.native_atomics = true;
  path.nvlinks = 18;
  path.nvswitch = true;
  path.pcie_path = "SYS";
  return path;
}

PathFacts no_peer_access() {
  PathFacts path;
  path.visible = true;
  path.pcie_path = "PHB";
  return path;
}

// Two GPUs of one process on an NVSwitch.
PairFacts one_process() { return {gpu(0, "0000:1b:00.0"), gpu(1, "0000:3d:00.0"), nvlink(), nvlink()}; }

PairFacts two_processes() {
  PairFacts facts = one_process();
  facts.receiver.process.process = 101;
  facts.receiver.process.start = "1001";
  return facts;
}

PairFacts without_peer_access(PairFacts facts) {
  facts.from_sender = facts.from_receiver = no_peer_access();
  return facts;
}

PairFacts cpus(bool same_process) {
  PairFacts facts = same_process ? one_process() : two_processes();
  for (EndFacts* end : {&facts.sender, &facts.receiver}) {
    end->kind = DeviceKind::host;
    end->bus_id.clear();
    end->vmm = false;
  }
  PathFacts path;
  path.visible = path.same_memory = path.peer_access = true;
  facts.from_sender = facts.from_receiver = path;
  return facts;
}

std::string obstacle(const PairFacts& facts, Transport transport) {
  for (const Candidate& candidate : candidates(facts)) {
    if (candidate.transport == transport) return candidate.obstacle;
  }
  return "not listed";
}

std::vector<Transport> best_first(const PairFacts& facts) { return choices(facts, candidates(facts), std::nullopt); }

std::string message_of(const PairFacts& facts, std::optional<Transport> wanted) {
  return error_of<CommError>([&] { choices(facts, candidates(facts), wanted); });
}

TEST(P2pChoice, ListsEveryTransportTheBestFirst) {
  std::vector<Transport> order;
  for (const Candidate& candidate : candidates(one_process())) order.push_back(candidate.transport);
  EXPECT_THAT(order, ElementsAre(Transport::direct, Transport::vmm, Transport::ipc, Transport::relay, Transport::host,
                                 Transport::nccl));
}

TEST(P2pChoice, GpusOfOneProcess) {
  EXPECT_THAT(best_first(one_process()), ElementsAre(Transport::direct, Transport::host, Transport::nccl));
  EXPECT_THAT(obstacle(one_process(), Transport::vmm), HasSubstr("one process"));
  EXPECT_THAT(obstacle(one_process(), Transport::ipc), HasSubstr("one process"));
  EXPECT_THAT(obstacle(one_process(), Transport::relay), HasSubstr("no third GPU"));
}

TEST(P2pChoice, WithPeerAccessOffOnlyTheHostAndTheLibraryAreLeft) {
  for (PairFacts facts : {one_process(), two_processes(), cpus(true)}) {
    facts.from_sender.bridges = facts.from_receiver.bridges = {topology::Bridge{.bus_id = "0000:9a:00.0"}};
    facts.receiver.peer_access = false;  // one end suffices
    EXPECT_FALSE(facts.peer_access());
    EXPECT_THAT(best_first(facts), ElementsAre(Transport::host, Transport::nccl));
    EXPECT_EQ(obstacle(facts, Transport::direct), "comm.peer_access is off");
    EXPECT_EQ(obstacle(facts, Transport::relay), "comm.peer_access is off");
    EXPECT_EQ(obstacle_to_peer_access(facts), "comm.peer_access is off");
  }
  EXPECT_EQ(obstacle_to_peer_access(one_process()), "");
  EXPECT_THAT(obstacle_to_peer_access(without_peer_access(two_processes())), HasSubstr("no peer access from GPU"));
}

TEST(P2pChoice, GpusOfTwoProcesses) {
  EXPECT_THAT(best_first(two_processes()), ElementsAre(Transport::vmm, Transport::ipc, Transport::host, Transport::nccl));
  EXPECT_THAT(obstacle(two_processes(), Transport::direct), HasSubstr("launch.mode: threads"));
}

TEST(P2pChoice, WithoutPeerAccessABridgeOrTheHost) {
  for (const bool threads : {true, false}) {
    PairFacts facts = without_peer_access(threads ? one_process() : two_processes());
    EXPECT_THAT(best_first(facts), ElementsAre(Transport::host, Transport::nccl));
    facts.from_sender.bridges = {{"0000:9a:00.0"}, {"0000:ba:00.0"}};
    EXPECT_THAT(best_first(facts), ElementsAre(Transport::host, Transport::nccl)) << "only one end reaches it";
    facts.from_receiver.bridges = {{"0000:ba:00.0"}};
    EXPECT_THAT(best_first(facts), ElementsAre(Transport::relay, Transport::host, Transport::nccl));
    const Transport best = threads ? Transport::direct : Transport::vmm;
    EXPECT_THAT(obstacle(facts, best),
                AllOf(HasSubstr("no peer access from GPU 0000:1b:00.0 (rank 0) to GPU 0000:3d:00.0 (rank 1) (PHB)"),
                      HasSubstr("ACS"), HasSubstr("IOMMU"), HasSubstr("passthrough")));
  }
}

TEST(P2pChoice, PeerAccessHasToGoBothWays) {
  PairFacts facts = one_process();
  facts.from_receiver.peer_access = false;
  facts.from_receiver.why_no_access = "the chipset does not support it";
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::host, Transport::nccl));
  EXPECT_THAT(obstacle(facts, Transport::direct),
              AllOf(HasSubstr("from GPU 0000:3d:00.0 (rank 1) to"), HasSubstr("NVML: the chipset does not support it")));
}

TEST(P2pChoice, ABridgeIsSpareWhereThereIsADirectWay) {
  PairFacts facts = two_processes();
  facts.from_sender.bridges = facts.from_receiver.bridges = {{"0000:ba:00.0"}};
  EXPECT_THAT(best_first(facts),
              ElementsAre(Transport::vmm, Transport::ipc, Transport::relay, Transport::host, Transport::nccl));
  EXPECT_THAT(choices(facts, candidates(facts), Transport::relay), ElementsAre(Transport::relay));
}

TEST(P2pChoice, AGpuThatTheOtherProcessDoesNotSee) {
  PairFacts facts = two_processes();
  facts.from_sender.visible = facts.from_receiver.visible = false;
  EXPECT_EQ(best_first(facts).front(), Transport::vmm) << "NVML says that there is access, and handles need no visibility";
  facts.from_sender.peer_access = facts.from_receiver.peer_access = false;
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::host, Transport::nccl));
  EXPECT_THAT(obstacle(facts, Transport::vmm), AllOf(HasSubstr("CUDA_VISIBLE_DEVICES"), HasSubstr("process of rank 0")));
  facts.from_sender.why_no_access = "the PCIe topology does not support it";
  EXPECT_THAT(obstacle(facts, Transport::vmm), AllOf(HasSubstr("NVML: the PCIe topology"), HasSubstr("ACS")));
}

TEST(P2pChoice, GpusWithoutVirtualMemoryManagement) {
  PairFacts facts = two_processes();
  facts.receiver.vmm = false;
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::ipc, Transport::host, Transport::nccl));
  EXPECT_THAT(obstacle(facts, Transport::vmm), HasSubstr("GPU 0000:3d:00.0 (rank 1) has no virtual memory management"));
  facts = without_peer_access(facts);
  facts.from_sender.bridges = facts.from_receiver.bridges = {{"0000:ba:00.0"}};
  EXPECT_THAT(obstacle(facts, Transport::relay), HasSubstr("virtual memory management"));
}

TEST(P2pChoice, ContainersOfTheirOwn) {
  PairFacts facts = two_processes();
  facts.receiver.process.pid_namespace = "4026532001";
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::vmm, Transport::host, Transport::nccl));
  EXPECT_THAT(obstacle(facts, Transport::ipc), AllOf(HasSubstr("PID namespaces"), HasSubstr("--pid host")));
  facts = two_processes();
  facts.receiver.process.ipc_namespace = "4026532002";
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::vmm, Transport::host, Transport::nccl));
  EXPECT_THAT(obstacle(facts, Transport::ipc), AllOf(HasSubstr("IPC namespaces"), HasSubstr("--ipc host")));
  facts = two_processes();
  facts.receiver.process.network_namespace = "4026532003";
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::ipc, Transport::nccl));
  EXPECT_THAT(obstacle(facts, Transport::vmm), AllOf(HasSubstr("network namespaces"), HasSubstr("--network host")));
  EXPECT_THAT(obstacle(facts, Transport::host), HasSubstr("network namespaces"));
  facts.sender.fabric = true;
  EXPECT_THAT(obstacle(facts, Transport::vmm), HasSubstr("network namespaces")) << "fabric handles need both ends";
  facts.receiver.fabric = true;
  EXPECT_EQ(best_first(facts).front(), Transport::vmm) << "fabric handles travel as text";
  facts.from_sender.bridges = facts.from_receiver.bridges = {{"0000:ba:00.0"}};
  EXPECT_THAT(obstacle(facts, Transport::relay), HasSubstr("network namespaces")) << "its counters are in the host's memory";
  facts = two_processes();
  facts.receiver.process.pid_namespace = facts.receiver.process.network_namespace = "";
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::vmm, Transport::ipc, Transport::host, Transport::nccl))
      << "unknown is no obstacle";
}

TEST(P2pChoice, EqualNumbersInTwoPidNamespacesAreTwoProcesses) {
  PairFacts facts = one_process();
  facts.receiver.process.pid_namespace = "4026532001";
  EXPECT_THAT(obstacle(facts, Transport::direct), HasSubstr("different processes"));
  EXPECT_EQ(best_first(facts).front(), Transport::vmm);
}

TEST(P2pChoice, BetweenHostsOnlyTheLibrary) {
  for (PairFacts facts : {one_process(), cpus(true)}) {
    facts.receiver.process.host = "host-b";
    EXPECT_THAT(best_first(facts), ElementsAre(Transport::nccl));
    for (const Transport transport : {Transport::direct, Transport::vmm, Transport::ipc, Transport::relay, Transport::host}) {
      EXPECT_EQ(obstacle(facts, transport), "on different hosts");
    }
  }
}

TEST(P2pChoice, BetweenHostsOfOneNvlinkFabricVmmByFabricHandles) {
  PairFacts facts = two_processes();
  facts.receiver.process.host = "host-b";
  facts.from_sender = facts.from_receiver = {};  // neither sees the other
  facts.sender.fabric_clique = facts.receiver.fabric_clique = "ab01/7";
  facts.sender.fabric = facts.receiver.fabric = true;
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::vmm, Transport::nccl));
  EXPECT_EQ(obstacle_to_peer_access(facts), "");
  EXPECT_EQ(obstacle_to_mailbox(facts, std::nullopt), "");
  for (const Transport transport : {Transport::direct, Transport::ipc, Transport::relay, Transport::host})
    EXPECT_THAT(obstacle(facts, transport), HasSubstr("on different hosts, where only vmm")) << to_string(transport);
  facts.receiver.peer_access = false;
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::nccl)) << "comm.peer_access is off";
  facts.receiver.peer_access = true;
  facts.receiver.fabric = false;
  facts.receiver.why_no_fabric = "no IMEX channel";
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::nccl));
  EXPECT_THAT(obstacle(facts, Transport::vmm),
              AllOf(HasSubstr("(rank 1) has no fabric handles"), HasSubstr("no IMEX channel")));
  facts.receiver.fabric = true;
  facts.receiver.fabric_clique = "ab01/8";
  EXPECT_THAT(obstacle(facts, Transport::vmm), AllOf(HasSubstr("not in one NVLink fabric"), HasSubstr("CliqueId")));
  EXPECT_THAT(obstacle_to_peer_access(facts), HasSubstr("not in one NVLink fabric"));
  facts.sender.fabric_clique = facts.receiver.fabric_clique = "";
  EXPECT_EQ(obstacle(facts, Transport::vmm), "on different hosts") << "handles alone reach no other host";
}

TEST(P2pChoice, WithoutStreamMemoryOperationsOnlyTheLibrary) {
  PairFacts facts = one_process();
  facts.receiver.stream_memory_operations = false;
  EXPECT_THAT(best_first(facts), ElementsAre(Transport::nccl));
  EXPECT_THAT(obstacle(facts, Transport::host), AllOf(HasSubstr("0000:3d:00.0"), HasSubstr("cuStreamWaitValue32")));
}

TEST(P2pChoice, Cpus) {
  EXPECT_THAT(best_first(cpus(true)), ElementsAre(Transport::direct, Transport::host, Transport::nccl));
  EXPECT_THAT(best_first(cpus(false)), ElementsAre(Transport::host, Transport::nccl));
  EXPECT_THAT(obstacle(cpus(false), Transport::vmm), HasSubstr("GPUs only"));
  EXPECT_THAT(obstacle(cpus(false), Transport::relay), HasSubstr("GPUs only"));
}

TEST(P2pChoice, ACpuAndAGpuHaveNothingInCommon) {
  PairFacts facts = cpus(true);
  facts.sender = one_process().sender;
  EXPECT_THAT(message_of(facts, std::nullopt),
              AllOf(HasSubstr("no transport"), HasSubstr("one end is a GPU, the other a CPU")));
}

TEST(P2pChoice, WhatIsAskedForByNameIsUsedOrAnError) {
  for (const Transport possible : {Transport::vmm, Transport::ipc, Transport::host, Transport::nccl}) {
    EXPECT_THAT(choices(two_processes(), candidates(two_processes()), possible), ElementsAre(possible));
  }
  const PairFacts facts = without_peer_access(two_processes());
  EXPECT_THAT(
      message_of(facts, Transport::vmm),
      AllOf(HasSubstr("GPU 0000:1b:00.0 (rank 0) -> GPU 0000:3d:00.0 (rank 1)"), HasSubstr("comm.p2p=vmm cannot be used"),
            HasSubstr(obstacle(facts, Transport::vmm)), HasSubstr("possible here: host, nccl")));
}

TEST(P2pChoice, BothEndsComeToTheSameAnswer) {
  PairFacts facts = two_processes();
  facts.from_sender.bridges = {{"0000:9a:00.0"}, {"0000:ba:00.0"}};
  facts.from_receiver.bridges = {{"0000:ba:00.0"}, {"0000:9a:00.0"}};
  const PairFacts parsed{Json(facts.sender).get<EndFacts>(), Json(facts.receiver).get<EndFacts>(),
                         Json(facts.from_sender).get<PathFacts>(), Json(facts.from_receiver).get<PathFacts>()};
  EXPECT_EQ(best_first(parsed), best_first(facts));
  EXPECT_EQ(parsed.bridges(), facts.bridges());
}

TEST(P2pNames, OfTransportsAndMoversGoBothWays) {
  std::vector<std::string> names;
  for (const Transport t :
       {Transport::direct, Transport::ipc, Transport::vmm, Transport::relay, Transport::host, Transport::nccl}) {
    names.push_back(to_string(t));
    EXPECT_EQ(named<Transport>(names.back()), t);
  }
  EXPECT_THAT(names, ElementsAre("direct", "ipc", "vmm", "relay", "host", "nccl"));
  names.clear();
  for (const Mover m : {Mover::copy_engine, Mover::sm_write, Mover::sm_read}) {
    names.push_back(to_string(m));
    EXPECT_EQ(named<Mover>(names.back()), m);
  }
  EXPECT_THAT(names, ElementsAre("copy_engine", "sm_write", "sm_read"));
  for (const char* const other : {"auto", "", "Direct", "nccl "}) {
    EXPECT_EQ(named<Transport>(other), std::nullopt) << other;
    EXPECT_EQ(named<Mover>(other), std::nullopt) << other;
  }
}

TEST(ObstacleToMailbox, IsEmptyWhereOneMayWorkAndNamesWhatRulesOutTheLast) {
  EXPECT_EQ(obstacle_to_mailbox(one_process(), std::nullopt), "");
  EXPECT_EQ(obstacle_to_mailbox(without_peer_access(one_process()), std::nullopt), "") << "host memory is left";
  EXPECT_EQ(obstacle_to_mailbox(one_process(), Transport::host), "");
  PairFacts two_hosts = two_processes();
  two_hosts.receiver.process.host = "host-b";
  EXPECT_EQ(obstacle_to_mailbox(two_hosts, std::nullopt), "on different hosts");
  EXPECT_EQ(obstacle_to_mailbox(two_hosts, Transport::vmm),
            "vmm (comm.p2p or comm.p2p_pairs) cannot be used: on different hosts");
  EXPECT_THAT(obstacle_to_mailbox(without_peer_access(one_process()), Transport::direct),
              AllOf(HasSubstr("direct (comm.p2p"), HasSubstr("no peer access")));
  EXPECT_THAT(obstacle_to_mailbox(one_process(), Transport::nccl),
              HasSubstr("nccl (comm.p2p or comm.p2p_pairs) holds no message"));
}

}  // namespace
}  // namespace plait::comm::p2p
