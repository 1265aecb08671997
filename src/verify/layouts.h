// Layouts by name: from the text of a configuration or the command line, and all possible ones for a number of ranks.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"

namespace plait::verify {

// What a layout changes in a configuration.
struct LayoutRequest {
  std::string text;                    // as given, or layout_text() of it
  std::vector<std::string> overrides;  // "parallel.pipeline=2"
};

// "pipeline=2 tensor=2 schedule=zb-h1 zero=1": keys of `parallel`; what is not given is as in the configuration, and data is 1.
// ConfigError, under `key`, where it is not a list of key=value; whether the keys exist is for the configuration to say.
LayoutRequest parse_layout(const std::string& text, const std::string& key = "verify.layouts");

// Every mesh of `ranks` ranks with every schedule and ZeRO stage, whether a model can be laid out so or not:
//   pipeline > 1   every built-in schedule; two stages per rank where it takes any number. And at any size the one from a file
//                  that `base` has, where it is for as many pipeline ranks
//   data > 1       ZeRO 0, 1, 2
//   tensor > 1     with sequence parallelism, and once per mesh without (1f1b, ZeRO 0)
// Everything else is as in `base`.
std::vector<LayoutRequest> all_layouts(int ranks, const ParallelConfig& base);

// The overrides that make any configuration the serial run: one rank, and nothing that saves memory.
std::vector<std::string> serial_overrides();

// What parse_layout gives `layout` for, in a configuration whose own layout is `base`: keys in a fixed order, without those
// that are at their default in both.
std::string layout_text(const ParallelConfig& layout, const ParallelConfig& base);

}  // namespace plait::verify
