#include "comm/polled_rendezvous.h"

#include <algorithm>
#include <thread>

#include "core/error.h"

namespace plait::comm {

std::optional<std::string> PolledRendezvous::wait(const std::string& key, std::chrono::milliseconds timeout) {
  using std::chrono::microseconds;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (auto pause = microseconds(200);; pause = std::min(pause * 3 / 2, microseconds(20'000))) {
    if (const auto reason = abort_reason()) {
      throw CommError("rendezvous: gave up waiting for key '" + key + "': " + *reason);
    }
    if (auto value = find(key)) return value;
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace plait::comm
