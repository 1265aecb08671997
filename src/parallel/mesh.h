// The mesh of ranks: pipeline × data × tensor, tensor fastest. Pure arithmetic.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"

namespace plait::parallel {

struct Coordinates {
  int pipeline = 0, data = 0, tensor = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

struct Layout {
  int pipeline = 1, data = 1, tensor = 1;

  int ranks() const { return pipeline * data * tensor; }
  Coordinates coordinates(int rank) const { return {rank / (tensor * data), rank / tensor % data, rank % tensor}; }
  int rank(Coordinates c) const { return (c.pipeline * data + c.data) * tensor + c.tensor; }
  // The ranks that differ from `rank` in the data coordinate only, in order of that coordinate; `rank` among them.
  std::vector<int> data_group(int rank) const;
  std::string to_string() const;  // "pipeline 1 × data 4 × tensor 1"
};

// Sizes from the configuration; data = 0 (auto) takes what the other axes leave of `ranks`. ConfigError if they do not
// multiply to `ranks`.
Layout resolve_layout(const ParallelConfig& config, int ranks);

}  // namespace plait::parallel
