// How many messages run beside a number of products, so that methods compare.
#pragma once

#include <optional>
#include <vector>

namespace plait::bench {

// Of a method: messages that its trial brought across while the products ran, having been offered all that it moves by itself.
// What comes out is the number of messages for each method: nine tenths of what the slowest carried, the same for all. A method
// that carries less than half of what the reference does is not held against it: it gets nine tenths of its own, at most the
// number of the others, so that it neither makes theirs small nor the run long. At least two each. `reference` is the library's
// method; without it the one that carries most.
std::vector<int> message_loads(const std::vector<int>& carried, std::optional<std::size_t> reference);

// The product with which message `message` of `messages` may leave, when they are spread evenly over `products`. All from 0.
int product_of(int message, int messages, int products);

}  // namespace plait::bench
