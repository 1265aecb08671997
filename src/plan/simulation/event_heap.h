// The ends of running tasks, the earliest first.
#pragma once

#include <utility>
#include <vector>

#include "core/index.h"

namespace plait::plan::simulation {

// An indexed binary heap. Every task has at most one event, which can be moved. Ties go to the lower task. Allocates only in
// the constructor.
class EventHeap {
 public:
  explicit EventHeap(int tasks) : times_(static_cast<std::size_t>(tasks)), places_(static_cast<std::size_t>(tasks), absent) {
    heap_.reserve(static_cast<std::size_t>(tasks));
  }

  bool empty() const { return heap_.empty(); }
  int top() const { return heap_.front(); }
  double top_time() const { return times_[at(heap_.front())]; }

  // Adds the task's event, or moves it.
  void set(int task, double time) {
    times_[at(task)] = time;
    int& place = places_[at(task)];
    if (place == absent) {
      place = static_cast<int>(heap_.size());
      heap_.push_back(task);
    }
    sink(rise(place));
  }

  void pop() {
    places_[at(heap_.front())] = absent;
    const int last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return;
    put(0, last);
    sink(0);
  }

 private:
  static constexpr int absent = -1;

  bool before(int a, int b) const { return times_[at(a)] != times_[at(b)] ? times_[at(a)] < times_[at(b)] : a < b; }
  void put(int place, int task) {
    heap_[at(place)] = task;
    places_[at(task)] = place;
  }

  int rise(int place) {
    const int task = heap_[at(place)];
    while (place > 0 && before(task, heap_[at((place - 1) / 2)])) {
      put(place, heap_[at((place - 1) / 2)]);
      place = (place - 1) / 2;
    }
    put(place, task);
    return place;
  }

  void sink(int place) {
    const int task = heap_[at(place)], size = static_cast<int>(heap_.size());
    for (int child = 2 * place + 1; child < size; child = 2 * place + 1) {
      if (child + 1 < size && before(heap_[at(child + 1)], heap_[at(child)])) ++child;
      if (!before(heap_[at(child)], task)) break;
      put(place, heap_[at(child)]);
      place = child;
    }
    put(place, task);
  }

  std::vector<double> times_;  // by task
  std::vector<int> places_;    // by task: index into heap_
  std::vector<int> heap_;
};

}  // namespace plait::plan::simulation
