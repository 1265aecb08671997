// Splits a line into overrides of a configuration.
#pragma once

#include <string>
#include <vector>

namespace plait::verify {

// "pipeline=2 stages=[1, 3]" → {"pipeline=2", "stages=[1, 3]"}. A new override begins at each word of the form name=...; any
// other word belongs to the value before it. ConfigError, under `key`, if the first word is not of that form.
std::vector<std::string> split_overrides(const std::string& text, const std::string& key);

}  // namespace plait::verify
