// Tests that run the program in a folder of their own.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/temporary_directory.h"
#include "run_plait.h"

namespace plait::app {

class ProgramTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder.path() + "/" + name; }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  // '@' stands for the test's folder.
  Outcome plait(std::string arguments) {
    for (std::size_t at = 0; (at = arguments.find('@', at)) != std::string::npos; at += folder.path().size())
      arguments.replace(at, 1, folder.path());
    return run_plait(folder.path(), arguments);
  }
  nlohmann::json json(const std::string& arguments) {
    const Outcome outcome = plait(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return nlohmann::json::parse(outcome.output, nullptr, false);
  }
  // What is said of arguments that are the user's error.
  std::string refused(const std::string& arguments) {
    const Outcome outcome = plait(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    return outcome.errors;
  }

  plait::test::TemporaryDirectory folder;
};

}  // namespace plait::app
