// Runs the ranks of a test as threads of this process.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/make_communicator.h"

namespace plait::comm::test {

// What each rank's body threw ("" for nothing), by rank.
inline std::vector<std::string> outcome_of_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::string> outcome(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, &outcome, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        outcome[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

inline GroupSpec host_group(int rank, int size, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  GroupSpec spec;
  spec.name = "test";
  spec.rank = rank;
  spec.size = size;
  spec.device = {DeviceKind::host, rank};
  spec.timeout = timeout;
  return spec;
}

}  // namespace plait::comm::test
