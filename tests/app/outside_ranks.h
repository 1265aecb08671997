// Two ranks that an outside launcher has started, which here is a test that sets its variables.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/temporary_directory.h"
#include "run_plait.h"

namespace plait::app {

class OutsideRanks : public testing::Test {
 protected:
  OutsideRanks() {
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 200; ++i) text << "the quick brown fox jumps over the lazy dog " << i << "\n";
    text.close();
    std::ofstream(folder_ / "job.yaml") << "run: {name: a, dir: " << folder_.string() << "}\n"
                                        << "model: {layers: 2, hidden: 16, heads: 2}\n"
                                        << "data: {train: [" << (folder_ / "text").string() << "], sequence_length: 16}\n"
                                        << "train: {steps: 3, global_batch: 4, micro_batch: 1, optimizer: {lr: 1e-3}}\n"
                                        << "launch: {device: cpu}\nlog: {tensorboard: false}\ncomm: {timeout_s: 100}\n";
  }

  // Runs `train` as rank 0 and rank 1, each in a folder of its own: rank0, rank1. `of_rank_1`: its own arguments; `variables`:
  // of the launcher, with {} for the rank.
  std::vector<Outcome> train(const std::string& of_both, const std::string& of_rank_1 = "",
                             const std::string& variables = "RANK={} WORLD_SIZE=2 LOCAL_RANK={}") {
    const std::string job = (folder_ / "job.yaml").string();
    return start("train " + job + (with_rendezvous_ ? " --set launch.rendezvous=" + next_meeting() : "") + " " + of_both,
                 of_rank_1, variables);
  }

  // Runs a benchmark on both: "collectives --sizes 4K".
  std::vector<Outcome> bench(const std::string& of_both, const std::string& of_rank_1 = "") {
    return start("bench " + of_both + " --device cpu" + (with_rendezvous_ ? " --rendezvous " + next_meeting() : ""), of_rank_1);
  }

  std::string next_meeting() { return (folder_ / ("meet" + std::to_string(jobs_++))).string(); }

  std::vector<Outcome> start(const std::string& arguments, const std::string& of_rank_1,
                             const std::string& variables = "RANK={} WORLD_SIZE=2 LOCAL_RANK={}") {
    std::vector<Outcome> outcomes(2);
    {
      std::vector<std::jthread> ranks;
      for (int r = 0; r < 2; ++r) {
        ranks.emplace_back([&, r] {
          const std::filesystem::path own = folder_ / ("rank" + std::to_string(r));
          std::filesystem::create_directories(own);
          std::string command = variables;
          for (std::size_t at; (at = command.find("{}")) != std::string::npos;) command.replace(at, 2, std::to_string(r));
          command = "cd " + own.string() + " && env " + command + " " + test_paths::plait + " " + arguments;
          outcomes[static_cast<std::size_t>(r)] = run(own, command + (r == 1 ? " " + of_rank_1 : ""));
        });
      }
    }
    return outcomes;
  }
  static auto is_refused(const testing::Matcher<const std::string&>& words) {
    return testing::AllOf(testing::Field("status", &Outcome::status, 2), testing::Field("errors", &Outcome::errors, words));
  }
  std::size_t runs() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      count += std::filesystem::exists(entry.path() / "config.yaml") ? 1 : 0;
    return count;
  }

  plait::test::TemporaryDirectory directory_;
  std::filesystem::path folder_ = directory_.path();
  bool with_rendezvous_ = true;
  int jobs_ = 0;
};

}  // namespace plait::app
