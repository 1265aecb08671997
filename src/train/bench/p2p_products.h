// What messages of a pair cost the matrix products that run beside them, on both ends.
#pragma once

#include <nlohmann/json.hpp>

#include "train/bench/p2p_pair_end.h"

namespace plait::train {

// Both ends call it and get the same. A number of products, alone and beside as many messages of 16 MB and of 64 MB (smaller on a
// CPU) as the communication library would take four fifths of their time for; every method moves the same bytes. Rates are the
// median of `rounds`. `dim` 0: ProductLoad::default_dim.
nlohmann::ordered_json measure_products(PairEnd& end, std::int64_t dim, int rounds);

}  // namespace plait::train
