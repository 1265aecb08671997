// comm.require: the paths that are refused, and the words of the refusal.
#include "runtime/group_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plait::runtime {
namespace {

using comm::Carrier;
using testing::AllOf;
using testing::HasSubstr;

// Two hosts of two GPUs each; those of the second host do not reach each other.
comm::p2p::JobFacts two_hosts() {
  std::vector<comm::p2p::EndFacts> ends;
  std::vector<std::map<int, comm::p2p::PathFacts>> paths(4);
  for (int rank = 0; rank < 4; ++rank) {
    comm::p2p::EndFacts end;
    end.rank = rank;
    end.process.host = rank < 2 ? "host-a" : "host-b";
    end.kind = DeviceKind::cuda;
    end.bus_id = "0000:1" + std::to_string(rank) + ":00.0";
    ends.push_back(end);
    comm::p2p::PathFacts path;
    path.visible = true;
    path.peer_access = rank < 2;
    path.pcie_path = "PHB";
    paths[static_cast<std::size_t>(rank)][rank ^ 1] = path;
  }
  return {ends, paths};
}

GroupPaths data_group(Carrier within, Carrier between, const std::string& via) {
  GroupPaths group{"data", {0, 1, 2, 3}, {.by = "NCCL 2.28.9", .pairs = {}}};
  group.paths.pairs = {{0, 1, within, via, 2}, {1, 2, between, via, 2}, {2, 3, within, via, 2}};
  return group;
}

TEST(RequiredPaths, AreMetByWhatIsAsGood) {
  const comm::p2p::JobFacts facts = two_hosts();
  EXPECT_EQ(unmet_requirement(RequiredPath::none, {data_group(Carrier::net, Carrier::net, "TCP")}, facts), "");
  EXPECT_EQ(unmet_requirement(RequiredPath::p2p, {data_group(Carrier::p2p, Carrier::net, "NET/Socket")}, facts), "");
  EXPECT_EQ(unmet_requirement(RequiredPath::rdma, {data_group(Carrier::shm, Carrier::gdrdma, "NET/IB/GDRDMA")}, facts), "");
  EXPECT_EQ(unmet_requirement(RequiredPath::rdma, {data_group(Carrier::shm, Carrier::p2p, "P2P/MNNVL")}, facts), "");
}

TEST(RequiredPaths, NameThePairWhatItGotAndTheRemedy) {
  const comm::p2p::JobFacts facts = two_hosts();
  GroupPaths group = data_group(Carrier::p2p, Carrier::net, "NET/Socket");
  group.paths.pairs[2] = {2, 3, Carrier::shm, "SHM/direct/direct", 2};
  EXPECT_THAT(unmet_requirement(RequiredPath::p2p, {group}, facts),
              AllOf(HasSubstr("comm.require=p2p is not met: rank 2 -> rank 3 (data) goes by SHM/direct/direct (NCCL 2.28.9)"),
                    HasSubstr("no peer access from GPU 0000:12:00.0 (rank 2)"), HasSubstr("comm.require=none")));
  EXPECT_THAT(unmet_requirement(RequiredPath::rdma, {group}, facts),
              AllOf(HasSubstr("rank 1 -> rank 2 (data) goes by NET/Socket"), HasSubstr("nvidia-peermem")));
  group.paths.pairs = {{0, 1, Carrier::shm, "SHM/direct/direct", 2}};  // though peer access would work
  EXPECT_THAT(unmet_requirement(RequiredPath::p2p, {group}, facts), HasSubstr("NCCL_P2P_DISABLE"));
  const GroupPaths link{"messages", {0, 1}, {.by = "link", .pairs = {{0, 1, Carrier::shm, "host", 0}}}};
  EXPECT_THAT(unmet_requirement(RequiredPath::p2p, {link}, facts),
              HasSubstr("comm.p2p or comm.p2p_pairs asks for another way"));
}

TEST(RequiredPaths, AreNotMetByWhatIsNotKnown) {
  const comm::p2p::JobFacts facts = two_hosts();
  const GroupPaths within{"tensor", {0, 1}, {.by = "NCCL 2.28.9", .pairs = {}, .unknown = "the log is the user's"}};
  EXPECT_THAT(unmet_requirement(RequiredPath::p2p, {within}, facts),
              AllOf(HasSubstr("'tensor' are connected is not known: the log is the user's")));
  EXPECT_EQ(unmet_requirement(RequiredPath::rdma, {within}, facts), "") << "it is within one host";
}

}  // namespace
}  // namespace plait::runtime
