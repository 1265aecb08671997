// The program, as a user runs it.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "test_paths.h"

namespace plait::app {

struct Outcome {
  int status = -1;
  std::string output, errors;
};

// `folder`: for a temporary file. `command` is the shell's.
inline Outcome run(const std::filesystem::path& folder, const std::string& command) {
  Outcome outcome;
  const std::filesystem::path errors = folder / "stderr";
  FILE* pipe = ::popen((command + " 2>" + errors.string()).c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.output.append(buffer.data(), n);
  outcome.status = WEXITSTATUS(::pclose(pipe));
  std::ifstream file(errors);
  outcome.errors.assign(std::istreambuf_iterator<char>(file), {});
  return outcome;
}

inline Outcome run_plait(const std::filesystem::path& folder, const std::string& arguments) {
  return run(folder, std::string(test_paths::plait) + " " + arguments);
}

}  // namespace plait::app
