// How many passes a step may have, and which ways to braid them a configuration allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/axis.h"

namespace plait {

struct Config;

// Of the text of a configuration. A list of the GPUs of every rank fits.
inline constexpr std::size_t most_config_bytes = std::size_t{1} << 20;
inline constexpr std::size_t most_config_values = 100'000;

// What is wrong with the number of passes in a step on a mesh of these sizes; empty if nothing is, or if it is not known how
// many ranks divide the batch.
std::string too_many_passes(const Config& config, const AxisSizes& sizes);

// Whether forwards can be braided with other passes than halves of their micro-batches (comm.braid): where one rank has all
// stages and several micro-batches, and where a schedule file pairs them. Where it is not known how many ranks divide the batch
// it needs a pipeline.
bool has_partners(const Config& config, const AxisSizes& sizes);
// Why no forward is computed ahead (comm.braid) by so many pipeline ranks; empty if one is.
std::string no_ahead(const Config& config, std::int64_t pipeline_ranks);
// What is wrong with halves of micro-batches; empty if nothing is.
std::string no_halves(const Config& config, const AxisSizes& sizes);

}  // namespace plait
