#include "parallel/mesh.h"

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
  const Coordinates mine = coordinates(of);
  const auto at_an_end = [ends](const Coordinates& c) { return c.pipeline == ends.first || c.pipeline == ends.last; };
  std::vector<int> members;
  for (int other = 0; other < ranks(); ++other) {
    const Coordinates c = coordinates(other);
    const bool same_data = c.data == mine.data, same_tensor = c.tensor == mine.tensor,
               same_pipeline = c.pipeline == mine.pipeline;
    const bool both_ends = at_an_end(mine) && at_an_end(c);
    const bool member = group == Group::world || (group == Group::tensor && same_data && same_pipeline) ||
                        (group == Group::data && same_tensor && same_pipeline) ||
                        (group == Group::tied && same_data && same_tensor && (both_ends || same_pipeline));
    if (member) members.push_back(other);
  }
  return members;
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
