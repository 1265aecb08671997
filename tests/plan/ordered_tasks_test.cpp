#include "plan/ordered_tasks.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>

namespace plait::plan {
namespace {

TEST(OrderedTasks, ResultsComeInOrderWhateverTheTasksTake) {
  for (const std::size_t threads : {1, 2, 5}) {
    std::array<std::atomic<bool>, 5> busy = {};
    OrderedTasks<std::size_t> tasks(40, threads, [&](std::size_t task, std::size_t thread) {
      EXPECT_LT(thread, threads);
      EXPECT_FALSE(busy[thread].exchange(true)) << "a thread's number is in use once at a time";
      std::this_thread::sleep_for(std::chrono::microseconds(task % 7 * 100));
      busy[thread] = false;
      return task * task;
    });
    for (std::size_t n = 0; n < 40; ++n) EXPECT_EQ(tasks.take(n), n * n);
  }
}

TEST(OrderedTasks, WhatATaskThrowsIsThrownWhereItIsTaken) {
  for (const std::size_t threads : {1, 3}) {
    OrderedTasks<int> tasks(6, threads, [](std::size_t task, std::size_t) -> int {
      if (task % 2 == 1) throw std::runtime_error("task " + std::to_string(task));
      return static_cast<int>(task);
    });
    for (std::size_t n = 0; n < 6; ++n) {
      if (n % 2 == 0) {
        EXPECT_EQ(tasks.take(n), static_cast<int>(n));
      } else {
        EXPECT_THROW(tasks.take(n), std::runtime_error);
      }
    }
  }
}

TEST(OrderedTasks, LittleIsDoneThatNobodyTakes) {
  for (const std::size_t threads : {1, 2}) {
    std::atomic<int> begun = 0;
    {
      OrderedTasks<int> tasks(1000, threads, [&](std::size_t, std::size_t) { return ++begun; });
      static_cast<void>(tasks.take(0));
      static_cast<void>(tasks.take(1));
    }
    EXPECT_LE(begun, threads == 1 ? 2 : 2 + 2 * static_cast<int>(threads));
  }
}

}  // namespace
}  // namespace plait::plan
