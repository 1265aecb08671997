#include "parallel/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace plait::parallel {
namespace {

// live_together() for all pairs of items. Most items have one of a few lists of lifetimes: all tensors of a segment and slot
// live from its forward to its backward. So the lists are numbered, and each pair of lists is compared once.
class LifetimeLists {
 public:
  explicit LifetimeLists(const std::vector<MemoryItem>& items) : list_of_(items.size()) {
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return items[a].lifetimes < items[b].lifetimes; });
    for (const std::size_t index : order) {
      if (lists_.empty() || lists_.back()->lifetimes != items[index].lifetimes) lists_.push_back(&items[index]);
      list_of_[index] = lists_.size() - 1;
    }
    answers_.assign(lists_.size() * lists_.size(), unknown);
    for (const MemoryItem* item : lists_) {
      if (!item->lifetimes.empty()) end_ = std::max(end_, std::int64_t{item->lifetimes.back().last} + 1);
    }
    for (const MemoryItem* item : lists_) outlines_.push_back(outline_of(*item));
  }

  std::size_t count() const { return lists_.size(); }
  std::size_t list_of(std::size_t item) const { return list_of_[item]; }
  bool together(std::size_t a, std::size_t b) {
    std::int8_t& answer = answers_[a * lists_.size() + b];
    if (answer == unknown) answer = answers_[b * lists_.size() + a] = compare(a, b) ? 1 : 0;
    return answer == 1;
  }

 private:
  static constexpr std::int8_t unknown = -1;
  static constexpr int slices = 64;

  // A list of lifetimes in slices of the step. It decides most pairs without their lists, which are long with many
  // micro-batches.
  struct Outline {
    std::uint64_t at_begins = 0;  // lives at the instant at which the slice begins
    std::uint64_t within = 0;     // lives somewhere in it
  };

  std::int64_t slice_of(std::int64_t instruction) const { return instruction * slices / end_; }
  // The first slice that begins at the instruction or after it.
  std::int64_t slice_from(std::int64_t instruction) const { return (instruction * slices + end_ - 1) / end_; }
  // The bits of slices first to last, both included.
  static std::uint64_t bits(std::int64_t first, std::int64_t last) {
    if (first > last) return 0;
    return (~std::uint64_t{0} >> (slices - 1 - (last - first))) << first;
  }

  Outline outline_of(const MemoryItem& item) const {
    Outline outline;
    for (const Lifetime& l : item.lifetimes) {
      outline.within |= bits(slice_of(l.first), slice_of(l.last));
      // A slice begins at a real number: at an instruction or between two.
      outline.at_begins |= bits(slice_from(l.first), std::min<std::int64_t>(slice_of(l.last), slices - 1));
    }
    return outline;
  }

  bool compare(std::size_t a, std::size_t b) const {
    if (lists_[a]->lifetimes.empty() || lists_[b]->lifetimes.empty()) return true;
    const Outline &x = outlines_[a], &y = outlines_[b];
    if ((x.within & y.within) == 0) return false;
    return (x.at_begins & y.at_begins) != 0 || live_together(*lists_[a], *lists_[b]);
  }

  std::vector<std::size_t> list_of_;      // by item
  std::vector<const MemoryItem*> lists_;  // one item with each list
  std::vector<std::int8_t> answers_;      // by pair of lists
  std::vector<Outline> outlines_;         // by list
  std::int64_t end_ = 1;                  // end of all lifetimes
};

}  // namespace

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

  struct Placed {
    std::size_t offset, end, list;
  };
  LifetimeLists lifetimes(items_);
  std::array<std::vector<Placed>, 2> placed_in;  // arena and symmetric memory; by ascending offset
  // The place of the last item with a list of lifetimes. Memory only fills, so the next item with that list and size fits
  // nowhere before it.
  struct Latest {
    std::size_t size = 0, offset = 0;
  };
  std::array<std::vector<Latest>, 2> latest_in{std::vector<Latest>(lifetimes.count()), std::vector<Latest>(lifetimes.count())};
  for (const std::size_t index : order) {
    MemoryItem& item = items_[index];
    const std::size_t size = aligned(item.bytes), list = lifetimes.list_of(index);
    std::size_t& total = bytes_[static_cast<std::size_t>(item.in)];
    if (item.in == Allocation::link) {
      total += size;
      continue;
    }
    std::vector<Placed>& placed = placed_in[static_cast<std::size_t>(item.in)];
    Latest& latest = latest_in[static_cast<std::size_t>(item.in)][list];
    std::size_t offset = latest.size == size ? latest.offset : 0;
    for (const Placed& other : placed) {
      if (other.offset >= offset + size) break;
      if (other.end > offset && lifetimes.together(list, other.list)) offset = other.end;
    }
    item.offset = offset;
    latest = {size, offset};
    total = std::max(total, offset + size);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), offset, [](std::size_t o, const Placed& p) { return o < p.offset; }),
        {offset, offset + size, list});
  }
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
