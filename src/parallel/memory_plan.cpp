#include "parallel/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace plait::parallel {

bool live_together(const MemoryItem& a, const MemoryItem& b) {
  if (a.lifetimes.empty() || b.lifetimes.empty()) return true;
  std::size_t i = 0, j = 0;
  while (i < a.lifetimes.size() && j < b.lifetimes.size()) {
    const Lifetime& x = a.lifetimes[i];
    const Lifetime& y = b.lifetimes[j];
    if (x.first <= y.last && y.first <= x.last) return true;
    if (x.last < y.last) {
      ++i;
    } else {
      ++j;
    }
  }
  return false;
}

MemoryPlan::MemoryPlan(std::vector<MemoryItem> items) : items_(std::move(items)) {
  std::vector<std::size_t> order(items_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return items_[a].bytes > items_[b].bytes; });

  std::vector<std::size_t> placed;  // by ascending offset
  for (const std::size_t index : order) {
    MemoryItem& item = items_[index];
    const std::size_t size = (item.bytes + alignment - 1) / alignment * alignment;
    if (item.received) {
      received_bytes_ += size;
      continue;
    }
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const MemoryItem& neighbour = items_[other];
      if (!live_together(item, neighbour)) continue;
      if (neighbour.offset >= offset + size) break;
      const std::size_t end = neighbour.offset + (neighbour.bytes + alignment - 1) / alignment * alignment;
      offset = std::max(offset, end);
    }
    item.offset = offset;
    arena_bytes_ = std::max(arena_bytes_, offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](auto a, auto b) { return items_[a].offset < items_[b].offset; }),
                  index);
  }
}

const MemoryItem& MemoryPlan::find(const std::string& name) const {
  const auto it = std::find_if(items_.begin(), items_.end(), [&](const MemoryItem& item) { return item.name == name; });
  require(it != items_.end(), "MemoryPlan: no item is called '" + name + "'");
  return *it;
}

std::vector<std::pair<std::string, std::size_t>> MemoryPlan::bytes_by_kind() const {
  std::vector<std::pair<std::string, std::size_t>> sums;
  for (const MemoryItem& item : items_) {
    const auto it = std::find_if(sums.begin(), sums.end(), [&](const auto& sum) { return sum.first == item.kind; });
    if (it == sums.end()) {
      sums.emplace_back(item.kind, item.bytes);
    } else {
      it->second += item.bytes;
    }
  }
  return sums;
}

}  // namespace plait::parallel
