// Tests that train on small text, in a directory of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/temporary_directory.h"
#include "launch/settled_job.h"
#include "train/trainer.h"

namespace plait::train {

namespace fs = std::filesystem;

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(directory_ / "text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i << ": the quick brown fox jumps over the lazy dog\n";
  }

  std::string yaml() const {
    return "run: {name: run, dir: " + (directory_ / "runs").string() +
           "}\n"
           "model: {layers: 2, hidden: 32, heads: 4, ffn: 64}\n"
           "data: {train: [" +
           (directory_ / "text.txt").string() +
           "], tokenizer: bytes, sequence_length: 16}\n"
           "train: {steps: 6, global_batch: 8, micro_batch: 2, eval_every: 3, eval_batches: 2,"
           " optimizer: {lr: 3e-3, warmup: 2, schedule: cosine}}\n"
           "comm: {bucket_mb: 0.02}\n"
           "launch: {device: cpu, ranks: 2}\n"
           "checkpoint: {every: 3, keep: 3}\n"
           "log: {every: 2}\n";
  }

  TrainRequest request(std::vector<std::string> set = {}, const fs::path& resume = {}) const {
    return {launch::settle(parse_config(yaml(), set), parallel::Decision{}), resume, {}};
  }
  fs::path run_dir(const std::string& name = "run") const { return directory_ / "runs" / name; }

  static std::string bytes(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_TRUE(file.good()) << path;
    return text.str();
  }
  static void expect_same_state(const fs::path& a, const fs::path& b) {
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string x = bytes(a / name);
      EXPECT_GT(x.size(), 10'000u);
      EXPECT_TRUE(x == bytes(b / name)) << name << " of " << a << " and " << b;
    }
  }
  static std::vector<nlohmann::json> metrics(const fs::path& dir) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  std::size_t metrics_count() const {
    std::ifstream file(run_dir() / "metrics.jsonl");
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }
  // Sends this process SIGTERM once the run has `lines` lines of metrics, unless the result goes before.
  std::jthread stop_after(std::size_t lines) const {
    return std::jthread([this, lines](std::stop_token over) {
      while (!over.stop_requested() && metrics_count() < lines) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!over.stop_requested()) ::kill(::getpid(), SIGTERM);
    });
  }

  const plait::test::TemporaryDirectory folder_;
  const fs::path directory_ = folder_.path();
};

}  // namespace plait::train
