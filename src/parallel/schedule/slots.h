// Who holds which slot of a buffer, while a program is written.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "core/error.h"

namespace plait::parallel {

// Slots of one kind of buffer, the lowest free one first, so that their number is the most ever in use.
class Slots {
 public:
  int take() {
    const auto it = std::find(used_.begin(), used_.end(), false);
    const auto slot = it - used_.begin();
    if (it == used_.end()) used_.push_back(false);
    used_[static_cast<std::size_t>(slot)] = true;
    return static_cast<int>(slot);
  }
  void give_back(int slot) { used_[static_cast<std::size_t>(slot)] = false; }
  int count() const { return static_cast<int>(used_.size()); }

 private:
  std::vector<bool> used_;
};

// Slots of one kind, held per micro-batch.
class SlotTable {
 public:
  bool holds(int micro_batch) const { return held_.contains(micro_batch); }
  int take(int micro_batch) {
    const auto [it, fresh] = held_.try_emplace(micro_batch, 0);
    if (fresh) it->second = slots_.take();
    return it->second;
  }
  int of(int micro_batch) const {
    const auto it = held_.find(micro_batch);
    require(it != held_.end(), "SlotTable: the micro-batch holds no slot");
    return it->second;
  }
  void give_back(int micro_batch) {
    slots_.give_back(of(micro_batch));
    held_.erase(micro_batch);
  }
  int count() const { return slots_.count(); }

 private:
  Slots slots_;
  std::map<int, int> held_;
};

}  // namespace plait::parallel
