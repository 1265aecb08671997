// The ways of a job, as its log and plan.json show them.
#include "train/report/path_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "train/trainer_fixture.h"

namespace plait::train {
namespace {

using comm::Carrier;
using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

comm::p2p::JobFacts machines(int hosts, int gpus_of_host, const std::function<std::string(int, int)>& link,
                             DeviceKind kind = DeviceKind::cuda) {
  std::vector<comm::p2p::EndFacts> ends;
  std::vector<std::map<int, comm::p2p::PathFacts>> paths(static_cast<std::size_t>(hosts * gpus_of_host));
  for (int rank = 0; rank < hosts * gpus_of_host; ++rank) {
    comm::p2p::EndFacts end;
    end.rank = rank;
    end.process.host = "host-" + std::to_string(rank / gpus_of_host);
    end.kind = kind;
    end.bus_id = "0000:1b:00.0";
    ends.push_back(end);
    for (int other = rank / gpus_of_host * gpus_of_host; other < (rank / gpus_of_host + 1) * gpus_of_host; ++other) {
      if (other == rank) continue;
      comm::p2p::PathFacts path;
      path.visible = true;
      const std::string name = link(rank % gpus_of_host, other % gpus_of_host);
      path.nvlinks = name == "NV18" ? 18 : 0;
      path.nvswitch = path.peer_access = path.nvlinks > 0;
      path.pcie_path = path.nvlinks > 0 ? "NODE" : name;
      paths[static_cast<std::size_t>(rank)][other] = path;
    }
  }
  return {ends, paths};
}

Json paths_of_job(const comm::p2p::JobFacts& facts, const std::vector<std::vector<runtime::GroupPaths>>& by_rank) {
  const auto store = comm::make_thread_rendezvous();
  Json result;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank) {
    ranks.emplace_back([&, rank] {
      comm::Meeting meeting(*store, "paths", rank, static_cast<int>(by_rank.size()), std::chrono::milliseconds(20'000));
      Json told = gather_paths(by_rank[static_cast<std::size_t>(rank)], facts, meeting);
      if (rank == 0) result = std::move(told);
    });
  }
  ranks.clear();
  return result;
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

runtime::GroupPaths group(const std::string& name, std::vector<int> members, int rank, Carrier carrier,
                          const std::string& via) {
  runtime::GroupPaths g{name, std::move(members), {.by = "NCCL 2.28.9", .pairs = {}, .algorithms = {"ring"}, .channels = 24}};
  for (const int to : g.members) {
    if (to != rank) g.paths.pairs.push_back({rank, to, carrier, via, 24});
  }
  return g;
}

TEST(PathTable, HostsAndGroupsThatAreAlikeShareALine) {
  std::vector<std::vector<runtime::GroupPaths>> by_rank;
  for (int rank = 0; rank < 16; ++rank) {
    const std::vector<int> pair = {rank / 2 * 2, rank / 2 * 2 + 1};
    std::vector<int> all;
    for (int r = 0; r < 16; ++r) all.push_back(r);
    by_rank.push_back({group("tensor", pair, rank, Carrier::p2p, "P2P/CUMEM/read"),
                       group("data, world", all, rank, Carrier::gdrdma, "NET/IB/GDRDMA")});
    by_rank.back().back().paths.pairs.front() = {rank, rank ^ 1, Carrier::p2p, "P2P/CUMEM/read", 24};
  }
  const Json paths = paths_of_job(machines(2, 8, [](int, int) { return "NV18"; }), by_rank);
  const std::string table = path_table(paths);
  EXPECT_THAT(table, AllOf(HasSubstr("ranks 0-7 of each of 2 hosts alike: every two NV18 (switch), peer access"),
                           HasSubstr("tensor      8 groups of 2 P2P/CUMEM/read     NCCL 2.28.9 ring                 24"),
                           HasSubstr("data, world 0-15          P2P/CUMEM/read     NCCL 2.28.9 ring                 24"),
                           HasSubstr("NET/IB/GDRDMA")));
  EXPECT_LE(widest_line(table), 80u);
  EXPECT_EQ(paths["hosts"].size(), 2u);
  EXPECT_EQ(paths["peers"].size(), 2u * 8 * 7);
  ASSERT_EQ(paths["groups"].size(), 9u);
  const Json& tensor = paths["groups"][0];
  EXPECT_EQ(tensor["ways"],
            Json::parse(R"([{"carrier": "p2p", "via": "P2P/CUMEM/read", "channels": 24, "pairs": [[0, 1], [1, 0]]}])"));
}

TEST(PathTable, AMixedHostIsAMatrixThatFolds) {
  const auto link = [](int a, int b) { return a / 2 == b / 2 ? "NV18" : "SYS"; };
  for (const int gpus : {4, 16}) {
    std::vector<std::vector<runtime::GroupPaths>> none(static_cast<std::size_t>(gpus));
    none[0].push_back({"messages", {0, 1}, {.by = "link", .pairs = {{0, 1, Carrier::p2p, "vmm", 0}}}});
    none[0].push_back({"world", {0, 1}, {.by = "NCCL 2.28.9", .pairs = {}, .unknown = "its log is not read"}});
    const std::string table = path_table(paths_of_job(machines(1, gpus, link), none));
    EXPECT_THAT(table, AllOf(HasSubstr("! is without peer access"), HasSubstr("    0     -  NV18  SYS!"),
                             HasSubstr("no peer access from GPU"), HasSubstr("messages    0 -> 1        vmm"),
                             HasSubstr("not known: its log is not read")));
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.size() <= 80 || line.find("no peer access from") != std::string::npos) << line;
    }
  }
}

TEST(PathTable, CpusThatAreAllAlikeAreOneRow) {
  std::vector<std::vector<runtime::GroupPaths>> by_rank;
  for (int rank = 0; rank < 5; ++rank) by_rank.push_back({group("world", {0, 1, 2, 3, 4}, rank, Carrier::net, "TCP")});
  std::string link_of_last = "board";
  const auto facts = [&] {
    return machines(1, 5, [&](int a, int b) { return a + b > 6 ? link_of_last : "board"; }, DeviceKind::host);
  };
  const Json alike = paths_of_job(facts(), by_rank);
  ASSERT_EQ(alike["peers"].size(), 1u);
  EXPECT_EQ(alike["peers"][0]["every_two_of"], Json::parse("[0, 1, 2, 3, 4]"));
  EXPECT_EQ(alike["peers"][0]["link"], "board");
  EXPECT_EQ(alike["groups"][0]["ways"][0]["pairs"], "all");
  EXPECT_THAT(path_table(alike), HasSubstr("ranks 0-4 of a host: every two board"));

  link_of_last = "SYS";
  by_rank[4][0].paths.pairs.pop_back();
  const Json mixed = paths_of_job(facts(), by_rank);
  EXPECT_EQ(mixed["peers"].size(), 5u * 4);
  EXPECT_EQ(mixed["groups"][0]["ways"][0]["pairs"].size(), 5u * 4 - 1);
  EXPECT_THAT(path_table(mixed), HasSubstr("    4 board! board! board!  SYS!     -"));
}

class Paths : public TrainerTest {
 protected:
  Json plan_of(const std::vector<std::string>& set) {
    EXPECT_EQ(train(request(set)), 0);
    return Json::parse(bytes(run_dir() / "plan.json"));
  }
};

TEST_F(Paths, OfEveryKindOfRunAreInItsPlan) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Json data = plan_of({"train.steps=2"});
  const std::string shown = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  EXPECT_THAT(shown, AllOf(HasSubstr("ranks 0 1 of a host: every two same memory, peer access"), HasSubstr("data, world 0 1")));
  ASSERT_EQ(data["paths"]["groups"].size(), 1u) << data["paths"];
  EXPECT_EQ(data["paths"]["groups"][0]["ways"][0]["via"], "TCP");
  fs::remove_all(run_dir());

  const Json tensor = plan_of({"train.steps=2", "parallel.tensor=2", "comm.exchanges=links"});
  EXPECT_EQ(tensor["paths"]["groups"][0]["group"], "tensor");
  EXPECT_EQ(tensor["paths"]["groups"][0]["by"], "links");
  EXPECT_EQ(tensor["paths"]["groups"][0]["ways"][0]["via"], "direct");
  fs::remove_all(run_dir());

  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Json reductions = plan_of({"train.steps=2", "comm.reductions=links"});
  EXPECT_THAT(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(),
              HasSubstr("gradients of data-parallel ranks 0 1 are reduced by links: comm.reductions=links asks for it"));
  EXPECT_EQ(reductions["reductions"]["by"], "links");
  EXPECT_EQ(reductions["reductions"]["links"].size(), 2u);
  ASSERT_EQ(reductions["paths"]["groups"].size(), 2u) << "scalars go by the library";
  EXPECT_EQ(reductions["paths"]["groups"][0]["group"], "data");
  EXPECT_EQ(reductions["paths"]["groups"][0]["by"], "links");
  fs::remove_all(run_dir());

  const Json pipeline = plan_of({"train.steps=2", "parallel.pipeline=2", "comm.peer_access=off"});
  EXPECT_EQ(pipeline["point_to_point"][0]["transport"], "host");
  EXPECT_EQ(pipeline["point_to_point"][0]["better"][0]["reason"], "comm.peer_access is off");
  EXPECT_FALSE(pipeline["paths"]["peers"][0]["peer_access"].get<bool>());
  int links = 0;
  for (const Json& group : pipeline["paths"]["groups"]) {
    if (group["group"] != "messages") continue;
    ++links;
    EXPECT_EQ(group["ways"][0]["via"], "host");
    EXPECT_EQ(group["ways"][0]["carrier"], "shm");
  }
  EXPECT_EQ(links, 2);
}

TEST_F(Paths, ThatAreRequiredAndNotThereEndTheRun) {
  EXPECT_EQ(train(request({"train.steps=2", "comm.require=rdma"})), 0) << "it is on one host";
  try {
    train(request({"train.steps=2", "run.name=second", "comm.require=p2p"}));
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("comm.require=p2p is not met: rank 0 -> rank 1 (data, world) goes by TCP"),
                                    HasSubstr("launch.device: cuda"), Not(HasSubstr("aborted"))));
  }
}

}  // namespace
}  // namespace plait::train
