// What messages of a pair cost the matrix products that run beside them, on both ends.
//
// Both ends run the same number of products, one after the other, in runs of two kinds: alone, and beside the messages of each
// method. Compared are runs that offer the same bytes per product: with every product so many messages may leave
// (message_load.h), and they are chosen so that each method can move them while that product runs. So messages keep coming for
// as long as there are products, a method that is quick waits for the next product instead of running out of messages, and one
// that is slow does not run on alone.
//
// The GPUs' clocks follow power and temperature by more than what is looked for. Half a second of products goes before; then
// methods take their turns, each round beginning with another one, between runs alone: alone, method, alone, method, ...,
// alone. A run is held against its two neighbours (paired_slowdown.h), and the first quarter of its products is not timed.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/p2p_pair_end.h"

namespace plait::bench {

// Both ends call it and get the same: for messages of 16 MB and of 64 MB (smaller on a CPU) a row for each method, with medians
// of `rounds` (p2p_benchmark.h has the keys). What arrives is compared byte by byte in the trial that chooses the number of
// messages, not between the timed runs, where GPUs would cool. `dim` 0: ProductLoad::default_dim.
nlohmann::ordered_json measure_products(PairEnd& end, std::int64_t dim, int rounds);

}  // namespace plait::bench
