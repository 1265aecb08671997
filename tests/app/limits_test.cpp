// Configurations and checkpoints that ask for too much, as a user meets them: status 2, and words that name what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "checkpoint/manifest.h"
#include "core/device.h"
#include "core/file.h"
#include "core/format.h"
#include "core/temporary_directory.h"
#include "run_plait.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Limits : public testing::Test {
 protected:
  Limits() {
    std::ofstream(path("job.yaml")) << "run: {name: r, dir: " << path("runs")
                                    << "}\nmodel: {layers: 2, hidden: 32, heads: 4, vocab: 64}\n"
                                       "data: {tokenizer: random, sequence_length: 16}\n"
                                       "train: {steps: 2, global_batch: 4, micro_batch: 1}\n"
                                       "launch: {device: cpu, ranks: 2}\nlog: {tensorboard: false}\n";
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  // Within an address space of 4 GiB, where what tries to have all memory ends with another status.
  std::string refused(const std::string& arguments) {
    const Outcome outcome =
        run(folder_.path(), "ulimit -v 4194304; timeout 60 " + std::string(test_paths::plait) + " " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << outcome.errors;
    return outcome.errors;
  }

  plait::test::TemporaryDirectory folder_;
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes of addresses
TEST_F(Limits, HugeNumbersAreRefusedBeforeAnythingIsMadeOfThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"model.layers=1000000000", "model.layers=1000000000: must be 1 to 4096"},
      {"train.global_batch=1000000000000", "train.global_batch=1000000000000: must be 1 to 16777216"},
      {"train.global_batch=16777216", "16777216: makes"},
      {"train.global_batch=1e12", "wrong type: must be integer"},
      {"comm.bucket_mb=1e-300", "comm.bucket_mb=1e-300: must be auto or 0.001 to 1000000"},
      {"comm.timeout_s=1e300", "comm.timeout_s=1e300: must be 0.01 to 1000000"},
      {"placement.topology=/dev/zero", ""},
  };
  for (const auto& [set, words] : cases) {
    const bool only_plans = std::string(set).starts_with("placement");
    EXPECT_THAT(refused("plan " + path("job.yaml") + " --set " + set), HasSubstr(only_plans ? "not a regular file" : words));
    if (only_plans) continue;
    EXPECT_THAT(refused("train " + path("job.yaml") + " --set " + set), HasSubstr(words));
  }
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const std::pair<std::string, const char*> files[] = {{"/dev/zero", "more than the 1048576 such a file can have"},
                                                       {path("fifo"), "a pipe that nothing writes to"},
                                                       {folder_.path(), "not a regular file"}};
  for (const auto& [file, words] : files) EXPECT_THAT(refused("train " + file), AllOf(HasSubstr(file), HasSubstr(words)));
}

TEST_F(Limits, AModelLargerThanTheMachineIsRefusedByEachRank) {
  EXPECT_THAT(refused("train " + path("job.yaml") + " --set model.hidden=131072"),
              AllOf(HasSubstr("model: would run out of memory: with train.micro_batch=1"), HasSubstr("on a rank, but host:")));
}

// A plan of so many blocks would take minutes.
TEST_F(Limits, AModelFarTooLargeIsRefusedBeforeItIsPlanned) {
  EXPECT_THAT(refused("train " + path("job.yaml") + " --set model.hidden=16384 --set model.layers=4096"),
              AllOf(HasSubstr("model: would run out of memory"),
                    HasSubstr("for weights, gradients and optimizer state alone on a rank, but host:")));
}

// As large as two thirds of the host's memory: 16 bytes of each of 12 * hidden^2 parameters a block.
TEST_F(Limits, RanksOfOneHostShareItsMemory) {
  const auto there = static_cast<double>(memory_size({DeviceKind::host, 0}));
  const auto hidden = 8 * std::llround(std::sqrt(there * 2 / 3 / (16 * 12 * 2)) / 8);
  EXPECT_THAT(refused("train " + path("job.yaml") + " --set model.hidden=" + std::to_string(hidden)),
              AllOf(HasSubstr("would run out of memory"), HasSubstr("has " + format_bytes(there / 2) + " for it")));
}
#endif

TEST_F(Limits, RanksOfOneHostAreBounded) {
  const Outcome outcome =
      run_plait(folder_.path(), "train " + path("job.yaml") + " --set launch.ranks=2048 --set train.global_batch=2048");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("launch.ranks=2048: must be at most 1024 on one host"));
}

// A state.json with a right checksum and anything in it.
TEST_F(Limits, StatesOfCheckpointsAreTyped) {
  ASSERT_EQ(run_plait(folder_.path(), "train " + path("job.yaml")).status, 0);
  const std::filesystem::path state = path("runs/r/checkpoints/step-00000002/state.json");
  const checkpoint::Manifest good = checkpoint::parse_manifest(read_text(state, 1 << 20), state);
  const auto refusal = [&](const checkpoint::Manifest& bad) {
    write_text_file(state, to_text(bad));
    const Outcome outcome = run_plait(folder_.path(), "train --resume " + path("runs/r") + " --set train.steps=3");
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr(state));
    return outcome.errors;
  };
  checkpoint::Manifest bad = good;
  bad.state = nullptr;
  EXPECT_THAT(refusal(bad), HasSubstr("'state' is null: must be an object"));
  bad.state = good.state;
  bad.state.erase("kernel_choices");
  EXPECT_THAT(refusal(bad), HasSubstr("'state.kernel_choices' is missing: must be a list"));
  for (const char* value : {"1", "null", "{}", "\"\"", "-1e300"}) {
    bad.state["kernel_choices"] = nlohmann::ordered_json::parse(value);
    EXPECT_THAT(refusal(bad), AllOf(HasSubstr("'state.kernel_choices' is "), HasSubstr("must be a list"))) << value;
  }
  bad.state["config"] = 3;
  EXPECT_THAT(refusal(bad), HasSubstr("'state.config' is 3: must be a string"));
  bad.state["config"] = good.state["config"];
  bad.state["kernel_choices"] = {"a", 1};
  EXPECT_THAT(refusal(bad), HasSubstr("'state.kernel_choices[1]' is 1: must be a string"));
  write_text_file(state, to_text(good));
  EXPECT_EQ(run_plait(folder_.path(), "train --resume " + path("runs/r") + " --set train.steps=3").status, 0);
}

}  // namespace
}  // namespace plait::app
