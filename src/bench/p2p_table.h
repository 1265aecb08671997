// Formats the result of `plait bench p2p` for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plait::bench {

// A row per method and size for each pair, then the products during messages; `brief`: a row per method, with its best rates.
// For lines of `width` columns.
std::string p2p_table(const nlohmann::ordered_json& result, bool brief, int width);
// For a result with "before_after": a line for each pair, at most 80 columns; warnings are folded.
std::string before_after_table(const nlohmann::ordered_json& result, int width);

}  // namespace plait::bench
