#include "checkpoint/coverage.h"

#include <iterator>

namespace plait::checkpoint {

bool Coverage::add(std::int64_t first, std::int64_t count) {
  if (count == 0) return true;
  std::int64_t end = first + count;
  auto next = runs_.upper_bound(first);
  if (next != runs_.end() && next->first < end) return false;
  if (next != runs_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second > first) return false;
    if (previous->second == first) {
      first = previous->first;
      runs_.erase(previous);
    }
  }
  if (next != runs_.end() && next->first == end) {
    end = next->second;
    runs_.erase(next);
  }
  runs_.emplace(first, end);
  return true;
}

std::optional<Coverage::Run> Coverage::missing(std::int64_t elements) const {
  std::int64_t covered = 0;
  for (const auto& [first, end] : runs_) {
    if (first > covered) return Run{covered, first};
    covered = end;
  }
  if (covered < elements) return Run{covered, elements};
  return std::nullopt;
}

}  // namespace plait::checkpoint
