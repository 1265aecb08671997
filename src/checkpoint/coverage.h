// The elements of a tensor that have been written, as a set of disjoint runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace plait::checkpoint {

class Coverage {
 public:
  using Run = std::pair<std::int64_t, std::int64_t>;  // [first, end)

  // Adds [first, first + count); false, and nothing is added, if any element of it is already there.
  bool add(std::int64_t first, std::int64_t count);

  // The first run of [0, elements) that is not covered.
  std::optional<Run> missing(std::int64_t elements) const;

  // Disjoint, neighbours joined: first -> end.
  const std::map<std::int64_t, std::int64_t>& runs() const { return runs_; }

 private:
  std::map<std::int64_t, std::int64_t> runs_;
};

}  // namespace plait::checkpoint
