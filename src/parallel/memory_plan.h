// Every piece of device memory a rank uses, by name, with its size, its lifetime and its place.
//
// The arena is one allocation, carved from exactly this plan, so the predicted peak is the allocated one. The same holds for
// the symmetric memory, to which the other ranks of the tensor group push what is gathered (comm/p2p/region.h): it has the same
// items at the same offsets on all of them. Buffers that receive messages are separate: they are memory of the links, which the
// senders fill (comm/p2p/link.h). Items of one allocation whose lifetimes never overlap may share memory. Lifetimes are counted
// in instructions of the rank's training program, then of its evaluation program, as seen from the compute stream: an item that
// other streams use lives from the last instruction that is sure to have run before to the first that is sure to come after
// (parallel/rank_memory.cpp).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

namespace plait::parallel {

// Instructions [first, last], both included.
struct Lifetime {
  int first = 0, last = 0;
  friend auto operator<=>(const Lifetime&, const Lifetime&) = default;
};

enum class Allocation { arena, symmetric, link };

struct MemoryItem {
  std::string name;  // "weights", "segment 3 slot 0 qkv"
  // weights | gradients | optimizer | activations | gradients of activations | exchanges | messages | scratch | batch |
  // workspace | constants
  std::string kind;
  std::size_t bytes = 0;
  std::vector<Lifetime> lifetimes;  // ascending; empty: always live
  Allocation in = Allocation::arena;
  std::size_t offset = 0;  // in the arena or the symmetric memory, a multiple of MemoryPlan::alignment
};

class MemoryPlan {
 public:
  static constexpr std::size_t alignment = 256;
  static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

  MemoryPlan() = default;
  // Places the items: largest first, each at the lowest offset that is free of items that live at the same time.
  explicit MemoryPlan(std::vector<MemoryItem> items);

  const std::vector<MemoryItem>& items() const { return items_; }
  std::size_t bytes_of(Allocation allocation) const { return bytes_[static_cast<std::size_t>(allocation)]; }
  std::size_t total_bytes() const { return std::accumulate(bytes_.begin(), bytes_.end(), std::size_t{0}); }
  // Sums by kind, before sharing.
  std::vector<std::pair<std::string, std::size_t>> bytes_by_kind() const;

 private:
  std::vector<MemoryItem> items_;
  std::array<std::size_t, 3> bytes_{};  // by allocation
};

bool live_together(const MemoryItem& a, const MemoryItem& b);

}  // namespace plait::parallel
