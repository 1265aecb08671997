#include "parallel/mesh.h"

#include "core/error.h"

namespace plait::parallel {

std::vector<int> Layout::data_group(int member) const {
  std::vector<int> group;
  Coordinates c = coordinates(member);
  for (c.data = 0; c.data < data; ++c.data) group.push_back(rank(c));
  return group;
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
