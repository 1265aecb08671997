// Ranks that an outside launcher has started with different configurations or data: real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "outside_ranks.h"

namespace plait::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;

struct Disagreement {
  const char* name;
  const char* of_rank_1;
  const char* words;  // what both say
};

class RanksDisagree : public OutsideRanks, public testing::WithParamInterface<Disagreement> {};

TEST_P(RanksDisagree, EndsBothWithStatus2BeforeAnythingElse) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(train("", std::string("--set ") + GetParam().of_rank_1), Each(is_refused(HasSubstr(GetParam().words))));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));  // not by running into comm.timeout_s
  EXPECT_EQ(runs(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, RanksDisagree,
    testing::Values(Disagreement{"lr", "train.optimizer.lr=0.5", "train.optimizer.lr=0.5: on rank 1, but 0.001 on rank 0"},
                    Disagreement{"seed", "run.seed=9", "run.seed=9: on rank 1, but 1234 on rank 0"},
                    Disagreement{"batch", "train.global_batch=8", "train.global_batch=8: on rank 1, but 4 on rank 0"},
                    Disagreement{"clip", "train.clip=0.5", "train.clip=0.5: on rank 1, but 1 on rank 0"},
                    Disagreement{"layers", "model.layers=4", "model.layers=4: on rank 1, but 2 on rank 0"},
                    Disagreement{"zero", "parallel.zero=1", "parallel.zero=1: on rank 1, but 0 on rank 0"},
                    // These would be refused on rank 1 alone, were they not compared first.
                    Disagreement{"planned", "parallel.tensor=auto", "parallel.tensor=auto: on rank 1, but 1 on rank 0"},
                    Disagreement{"layout", "parallel.data=4", "parallel.data=4: on rank 1, but auto on rank 0"},
                    Disagreement{"data", "data.train=/dev/null", "data.train="}),
    [](const auto& instance) { return std::string(instance.param.name); });

// Each rank is in a folder of its own, so a relative path is another file for each, as it is for ranks on several hosts.
class RanksWithCopies : public OutsideRanks {
 protected:
  RanksWithCopies() {
    for (const char* rank : {"rank0", "rank1"}) {
      fs::create_directories(folder_ / rank);
      fs::copy_file(folder_ / "text", folder_ / rank / "copy");
    }
    fs::last_write_time(folder_ / "rank1/copy", fs::last_write_time(folder_ / "rank0/copy"));
  }
};

TEST_F(RanksWithCopies, CopiesThatAreEqualDo) {
  EXPECT_THAT(train("--set data.train=copy"), Each(Field("status", &Outcome::status, 0)));
}

TEST_F(RanksWithCopies, AnotherSizeIsNamed) {
  const auto time = fs::last_write_time(folder_ / "rank1/copy");
  const auto bytes = fs::file_size(folder_ / "rank1/copy");
  fs::resize_file(folder_ / "rank1/copy", bytes - 1);
  fs::last_write_time(folder_ / "rank1/copy", time);
  EXPECT_THAT(train("--set data.train=copy"),
              Each(is_refused(AllOf(HasSubstr("data.train copy=" + std::to_string(bytes - 1) + " bytes, changed"),
                                    HasSubstr("on rank 1, but " + std::to_string(bytes) + " bytes, changed")))));
}

TEST_F(RanksWithCopies, AnotherTimeIsNamed) {
  fs::last_write_time(folder_ / "rank1/copy", fs::last_write_time(folder_ / "rank1/copy") - std::chrono::hours(1));
  EXPECT_THAT(train("--set data.train=copy"), Each(is_refused(HasSubstr("data.train copy="))));
}

TEST_F(RanksWithCopies, AMissingFileIsNamedOnBoth) {
  fs::remove(folder_ / "rank1/copy");
  EXPECT_THAT(train("--set data.train=copy"), Each(is_refused(AllOf(HasSubstr("matches no file"), HasSubstr("on rank 1")))));
}

TEST_F(OutsideRanks, WhatNamesSomethingOfAHostMayDiffer) {
  EXPECT_THAT(train("", "--set comm.interface=127.0.0.2 --set launch.mode=external"),
              Each(Field("status", &Outcome::status, 0)));
  EXPECT_EQ(runs(), 1u);
}

}  // namespace
}  // namespace plait::app
