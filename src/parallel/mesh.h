// The mesh of ranks: pipeline × data × tensor, tensor fastest, and the groups that communicate. Pure arithmetic.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"

namespace plait::parallel {

struct Coordinates {
  int pipeline = 0, data = 0, tensor = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

// Sets of ranks that run a collective together.
enum class Group {
  tensor,  // differ in the tensor coordinate only
  data,    // in the data coordinate only
  tied,    // first and last stage with the same data and tensor coordinates: they share the tied embedding table
  world,   // all
};
std::string to_string(Group group);

// Pipeline ranks of the model's first and last stage.
struct ModelEnds {
  int first = 0, last = 0;
  friend bool operator==(const ModelEnds&, const ModelEnds&) = default;
};

struct Layout {
  int pipeline = 1, data = 1, tensor = 1;

  int ranks() const { return pipeline * data * tensor; }
  Coordinates coordinates(int rank) const { return {rank / (tensor * data), rank / tensor % data, rank % tensor}; }
  int rank(Coordinates c) const { return (c.pipeline * data + c.data) * tensor + c.tensor; }
  // The same place in the mesh on another pipeline rank.
  int on_pipeline(int rank, int pipeline_rank) const;
  // The ranks of `rank`'s group in ascending order, `rank` among them. For Group::tied, a rank that holds neither end is in a
  // group by itself.
  std::vector<int> members(Group group, int rank, ModelEnds ends) const;
  std::string to_string() const;  // "pipeline 1 × data 4 × tensor 1"
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Sizes from the configuration; data = 0 (auto) takes what the other axes leave of `ranks`. ConfigError if they do not
// multiply to `ranks`.
Layout resolve_layout(const ParallelConfig& config, int ranks);

}  // namespace plait::parallel
