// The result of `plait bench p2p` for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plait::bench {

// One line per pair, method and size, products beside messages below; `brief`: one line per pair and method, with its best
// rates.
std::string p2p_table(const nlohmann::ordered_json& result, bool brief);

}  // namespace plait::bench
