#include "plan/simulation/event_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace plait::plan::simulation {
namespace {

TEST(EventHeap, GivesTheEarliestAndOfEqualsTheLowest) {
  constexpr int tasks = 50;
  std::mt19937 random(1);
  EventHeap heap(tasks);
  std::set<std::pair<double, int>> expected;
  std::map<int, double> times;
  for (int n = 0; n < 20'000; ++n) {
    ASSERT_EQ(heap.empty(), expected.empty());
    if (!expected.empty() && random() % 3 == 0) {
      ASSERT_EQ(heap.top(), expected.begin()->second);
      ASSERT_EQ(heap.top_time(), expected.begin()->first);
      times.erase(heap.top());
      expected.erase(expected.begin());
      heap.pop();
      continue;
    }
    // Few different times, so that many are equal; some tasks are in the heap already.
    const int task = static_cast<int>(random() % tasks);
    const double time = static_cast<double>(random() % 16);
    if (times.contains(task)) expected.erase({times[task], task});
    times[task] = time;
    expected.emplace(time, task);
    heap.set(task, time);
  }
}

}  // namespace
}  // namespace plait::plan::simulation
