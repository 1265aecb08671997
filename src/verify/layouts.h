// Layouts by name: from the text of a configuration or the command line, and all possible ones for a number of ranks.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace plait::verify {

// A layout as changes to a configuration.
struct LayoutRequest {
  std::string text;                    // as given, or layout_text() of it
  std::vector<std::string> overrides;  // "parallel.pipeline=2"
};

// "pipeline=2 tensor=2 schedule=zb-h1 zero=1": keys of `parallel`; others are as in the configuration, and data is 1.
// ConfigError, under `key`, if it is not a list of key=value; the configuration decides if the keys exist.
LayoutRequest parse_layout(const std::string& text, const std::string& key = "verify.layouts");

// Every mesh of `ranks` ranks with every schedule and ZeRO stage, including layouts that a model may not allow:
//   pipeline > 1   every built-in schedule, with two stages per rank if it takes any number. At any size also the file's
//                  schedule in `base`, if it is for as many pipeline ranks
//   data > 1       ZeRO 0, 1, 2
//   tensor > 1     with sequence parallelism, and once per mesh without (1f1b, ZeRO 0)
// Everything else is as in `base`.
std::vector<LayoutRequest> all_layouts(int ranks, const ParallelConfig& base);

// The overrides that turn any configuration into the serial run: one rank, and nothing that saves memory.
std::vector<std::string> serial_overrides();

// The inverse of parse_layout for a configuration whose own layout is `base`: keys in a fixed order, without those that have
// their default in both.
std::string layout_text(const ParallelConfig& layout, const ParallelConfig& base);

// "pipeline=2 stages=[1, 3]" → {"pipeline=2", "stages=[1, 3]"}. A new override begins at each word of the form name=...; any
// other word belongs to the value before it. ConfigError, under `key`, if the first word is not of that form.
std::vector<std::string> split_overrides(const std::string& text, const std::string& key);

}  // namespace plait::verify
