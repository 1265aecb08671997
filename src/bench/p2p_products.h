// Measures how much messages between a pair slow down concurrent matrix products on both ends.
//
// Both ends run the same number of products, one after the other, alone and during the messages of each method. All methods
// offer the same bytes per product: with every product a fixed number of messages may leave (message_load.h), few enough for
// each method to move them while that product runs. So messages keep coming as long as products run: a fast method waits for
// the next product instead of running out of messages, and a slow one does not continue alone.
//
// Power and temperature change GPU clocks by more than the measured effect. So half a second of products runs first. Then
// methods take turns between runs alone (alone, method, alone, method, ..., alone), and each round begins with a different
// method. A run is compared with its two neighbours (core/statistics.h), and the first quarter of its products is not timed.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/p2p_pair_end.h"

namespace plait::bench {

// Both ends call it and get the same result: for messages of 16 MB and of 64 MB (smaller on a CPU) a row for each method, with
// medians over `rounds` (p2p_benchmark.h lists the keys). Contents are compared byte by byte in the trial that chooses the
// number of messages, not between the timed runs, where GPUs would cool down. `dim` 0: ProductLoad::default_dim.
nlohmann::ordered_json measure_products(PairEnd& end, std::int64_t dim, int rounds);

}  // namespace plait::bench
