// Chooses the number of messages to send during a number of products, so that methods can be compared.
#pragma once

#include <optional>
#include <vector>

namespace plait::bench {

// `carried`, by method: messages that arrived while the products ran, in a trial that offered all the messages the method can
// move by itself. `reference` is the communication library's method; without it, the method that carried most. Returns the
// number of messages for each method, at least 2. It is the same for all compared methods: nine tenths of the number that the
// slowest of them carried. A method that carried less than half of the reference is not compared: it gets nine tenths of its
// own count, at most the common number, so that it neither shrinks the common number nor makes its own run long.
std::vector<int> message_loads(const std::vector<int>& carried, std::optional<std::size_t> reference);

// The product with which message `message` may leave if `messages` are spread evenly over `products`. All count from 0.
int product_of(int message, int messages, int products);

}  // namespace plait::bench
