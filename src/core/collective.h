// Collectives as data: what the ranks of a group do together, and what for.
#pragma once

#include "core/names.h"

namespace plait {

// `reduce_scatter` leaves each rank its own share of the sum, in its place in the tensor; `all_gather` brings every rank the
// shares of the others.
enum class Operation { sum, max, reduce_scatter, all_gather, barrier };
template <>
inline constexpr auto names<Operation> = std::to_array<Name<Operation>>({{Operation::sum, "sum"},
                                                                         {Operation::max, "max"},
                                                                         {Operation::reduce_scatter, "reduce_scatter"},
                                                                         {Operation::all_gather, "all_gather"},
                                                                         {Operation::barrier, "barrier"}});

// The stream that a collective is on, and the line of the ledger that it counts in, follow from this.
enum class Purpose { activations, weights, gradients, scalars };
template <>
inline constexpr auto names<Purpose> = std::to_array<Name<Purpose>>({{Purpose::activations, "activations"},
                                                                     {Purpose::weights, "weights"},
                                                                     {Purpose::gradients, "gradients"},
                                                                     {Purpose::scalars, "scalars"}});

}  // namespace plait
