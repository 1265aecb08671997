// The program, as a user runs it.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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

// In a terminal so wide that no table is broken.
inline Outcome run_plait(const std::filesystem::path& folder, const std::string& arguments) {
  return run(folder, "COLUMNS=300 " + std::string(test_paths::plait) + " " + arguments);
}

inline std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace plait::app
