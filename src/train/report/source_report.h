// What a run takes of its training data, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace plait::train {

// A line for each source, without a break at the end: its share of the tokens, and how often they have been gone through. Empty
// if there are no sources (random tokens).
std::string source_report(const std::vector<data::SourceUse>& uses, std::int64_t sequence_length);

}  // namespace plait::train
