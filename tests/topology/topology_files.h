// The small machines of tests/topology/topologies, and short forms of what tests ask of a topology.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/error_of.h"
#include "test_paths.h"
#include "topology/import.h"
#include "topology/routes.h"

namespace plait::topology::test {

inline std::string fixture(const std::string& name) {
  return std::string(test_paths::source) + "/tests/topology/topologies/" + name;
}

inline Imported read(const std::string& name) { return import_topology(fixture(name)); }

inline std::string text_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto place = text.find(what);
  if (place == std::string::npos) throw std::runtime_error("the text does not hold " + what);
  return text.replace(place, what.size(), by);
}

// "NVS18 370.8" of GPUs counted as in gpus_of.
inline std::string link(const Routes& routes, int a, int b) {
  const PairSummary summary =
      routes.summary(routes.gpus()[static_cast<std::size_t>(a)], routes.gpus()[static_cast<std::size_t>(b)]);
  std::ostringstream text;
  text << summary.link << " " << summary.gb_per_s;
  return text.str();
}

inline std::vector<std::string> messages(const Imported& imported) {
  std::vector<std::string> lines;
  for (const ImportWarning& warning : imported.warnings) lines.push_back(std::to_string(warning.line) + ": " + warning.message);
  return lines;
}

// What import_topology throws.
inline std::string refusal(const std::string& text) {
  return error_of<ConfigError>([&] { return import_topology(text, "file"); });
}

}  // namespace plait::topology::test
