#include "parallel/mesh.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace plait::parallel {

std::string to_string(Group group) {
  switch (group) {
    case Group::tensor: return "tensor";
    case Group::data: return "data";
    case Group::tied: return "tied";
    case Group::world: return "world";
  }
  throw InternalError("to_string: unknown group");
}

int Layout::on_pipeline(int of, int pipeline_rank) const {
  Coordinates c = coordinates(of);
  c.pipeline = pipeline_rank;
  return rank(c);
}

std::vector<int> Layout::members(Group group, int of, ModelEnds ends) const {
  Coordinates c = coordinates(of);
  std::vector<int> members;
  switch (group) {
    case Group::tensor:
      for (c.tensor = 0; c.tensor < tensor; ++c.tensor) members.push_back(rank(c));
      return members;
    case Group::data:
      for (c.data = 0; c.data < data; ++c.data) members.push_back(rank(c));
      return members;
    case Group::tied: {
      const bool at_an_end = c.pipeline == ends.first || c.pipeline == ends.last;
      if (!at_an_end || ends.first == ends.last) return {of};
      return {on_pipeline(of, std::min(ends.first, ends.last)), on_pipeline(of, std::max(ends.first, ends.last))};
    }
    case Group::world:
      members.resize(static_cast<std::size_t>(ranks()));
      std::iota(members.begin(), members.end(), 0);
      return members;
  }
  throw InternalError("Layout::members: unknown group");
}

std::string Layout::to_string() const {
  return "pipeline " + std::to_string(pipeline) + " × data " + std::to_string(data) + " × tensor " + std::to_string(tensor);
}

Layout resolve_layout(const ParallelConfig& config, int ranks) {
  Layout layout;
  layout.pipeline = static_cast<int>(config.pipeline);
  layout.tensor = static_cast<int>(config.tensor);
  const int others = layout.pipeline * layout.tensor;
  layout.data = config.data > 0 ? static_cast<int>(config.data) : ranks / others;
  if (layout.data < 1 || layout.ranks() != ranks) {
    throw ConfigError({{"parallel", layout.to_string(),
                        "the axes must multiply to the number of ranks, which is " + std::to_string(ranks) +
                            "; set launch.ranks, or leave parallel.data at auto",
                        "", 0}});
  }
  return layout;
}

}  // namespace plait::parallel
