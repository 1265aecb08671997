// What scripts/compare-with-transformers --json wrote of a training by PyTorch, and a run of plait held to it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace plait::app {

// The options of `plait train` with which it was, on other data.
inline std::string options_of(const nlohmann::json& training, const std::string& data) {
  std::string options;
  for (std::string change : training.at("overrides")) {
    if (change.starts_with("data.train=")) change = "data.train=[" + data + "]";
    options += " --set '" + change + "'";
  }
  return options;
}

// Loss and gradient norm of each of its 20 steps, within 1e-5.
inline void expect_steps_of(const nlohmann::json& training, const std::filesystem::path& metrics_file) {
  std::ifstream metrics(metrics_file);
  std::size_t step = 0;
  for (std::string line; std::getline(metrics, line); ++step) {
    const nlohmann::json ours = nlohmann::json::parse(line), theirs = training.at("steps").at(step);
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_NEAR(ours.at(key).get<double>() / theirs.at(key).get<double>(), 1, 1e-5) << key << " of step " << step + 1;
  }
  EXPECT_EQ(step, 20u);
}

}  // namespace plait::app
