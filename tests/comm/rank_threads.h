// Runs the ranks of a test as threads of this process.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"

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

// Blocks until `condition` holds. Throws when that takes longer than anything here should.
inline void wait_until(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("wait_until: it has not come");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What a stream is about to do next, and waits in if it is to wait.
class NextOn {
 public:
  explicit NextOn(StreamRef stream) : reached_(stream.device()) { stream.record(reached_); }
  void wait_until_reached() const {
    wait_until([&] { return reached_.is_complete(); });
  }

 private:
  Event reached_;
};

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
