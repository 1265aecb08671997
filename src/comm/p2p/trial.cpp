#include "comm/p2p/trial.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "core/error.h"

namespace plait::comm::p2p {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int timed_messages = 8;
// Comparing more than this on the host would take too long: a longer message is tried at this size, over all slots.
constexpr std::size_t largest_checked = std::size_t{32} << 20;

std::uint64_t pattern_word(std::uint64_t message, std::uint64_t index) {
  // SplitMix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) of place and message.
  std::uint64_t x = (message + 1) * 0x9e3779b97f4a7c15u + index;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::size_t stretch = 4096;

// Compares `part`, whole words from byte `first` of the message on.
bool is_right(std::span<const std::byte> part, std::uint64_t message, std::size_t first) {
  std::uint64_t differ = 0;
  for (std::size_t at = 0; at < part.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, part.data() + at, 8);
    differ |= word ^ pattern_word(message, (first + at) / 8);
  }
  return differ == 0;
}

// Blocks until `event` is complete; CommError after the time limit.
void synchronize_in_time(const Event& event, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  auto pause = std::chrono::microseconds(20);
  while (!event.is_complete()) {
    if (Clock::now() > deadline)
      throw CommError("trial messages did not arrive within " + std::to_string(timeout.count()) + " ms");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
}

std::vector<std::size_t> trial_sizes(std::size_t message_bytes, int slots) {
  const std::size_t full = std::min(message_bytes, largest_checked);
  std::vector<std::size_t> sizes(static_cast<std::size_t>(slots), full);  // all of every slot
  for (const std::size_t bytes : {full / 2 + 1, std::size_t{1}, full, full - full / 3}) {
    if (bytes > 0 && bytes <= full) sizes.push_back(bytes);  // and around the ring again, over the old contents
  }
  return sizes;
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint64_t message) {
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t word = pattern_word(message, at / 8);
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
  }
}

std::int64_t find_wrong_byte(std::span<const std::byte> bytes, std::uint64_t message) {
  std::size_t right = 0;  // whole stretches, which are compared without a branch
  while (right + stretch <= bytes.size() && is_right(bytes.subspan(right, stretch), message, right)) right += stretch;
  for (std::size_t at = right; at < bytes.size(); at += 8) {
    const std::uint64_t word = pattern_word(message, at / 8);
    const std::size_t count = std::min<std::size_t>(8, bytes.size() - at);
    if (std::memcmp(bytes.data() + at, &word, count) == 0) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(bytes.data() + at + i, reinterpret_cast<const std::byte*>(&word) + i, 1) != 0)
        return static_cast<std::int64_t>(at + i);
    }
  }
  return -1;
}

TrialResult synchronize_trial(Link& link, End end, Device device, std::size_t message_bytes, int slots,
                              std::chrono::milliseconds timeout) {
  TrialResult result;
  if (message_bytes == 0) return result;
  DeviceMemory memory(device);
  const Buffer data = memory.allocate(message_bytes);
  const Buffer host = memory.allocate(std::min(message_bytes, largest_checked), MemoryKind::pinned_host);
  const Stream stream(device, StreamPriority::high);  // declared after the memory, so drained before it is freed
  const StreamRef s = stream.ref();
  const int places = static_cast<int>(link.places().size());
  int next = 0;
  const auto pass = [&](std::size_t bytes, bool checked) {
    const int place = places > 0 ? next++ % places : -1;
    void* memory_of_message = data.data();
    if (end == End::receiver && place >= 0) {
      memory_of_message = link.memory_of(place) + link.places()[static_cast<std::size_t>(place)].message_offset;
    }
    const View view(memory_of_message, DType::u8, {static_cast<std::int64_t>(bytes)});
    if (end == End::sender) {
      link.send(s, view, place);
    } else {
      if (checked) s.zero(view.data, bytes);
      link.receive(s, view, nullptr, place);
    }
    return view;
  };
  Event done(device);
  try {
    std::uint64_t message = 0;
    for (const std::size_t bytes : trial_sizes(message_bytes, std::max(slots, places))) {
      const std::span<std::byte> text(static_cast<std::byte*>(host.data()), bytes);
      if (end == End::sender) {
        fill_pattern(text, message);
        s.copy(data.data(), text.data(), bytes);
        pass(bytes, true);
      } else {
        s.copy(text.data(), pass(bytes, true).data, bytes);
      }
      s.record(done);
      synchronize_in_time(done, timeout);  // the host's copy is used again
      if (end == End::receiver && result.problem.empty()) {
        const std::int64_t wrong = find_wrong_byte(text, message);
        if (wrong >= 0) {
          result.problem = "byte " + std::to_string(wrong) + " of trial message " + std::to_string(message) + " (" +
                           std::to_string(bytes) + " bytes) arrived wrong";
        }
      }
      ++message;
    }
    Event begin(device, EventTiming::on), finish(device, EventTiming::on);
    for (int n = 0; n <= timed_messages; ++n) {
      if (n == 1) s.record(begin);  // the first brings both ends together
      pass(message_bytes, false);
    }
    s.record(finish);
    synchronize_in_time(finish, timeout);
    result.microseconds = 1e3 * static_cast<double>(elapsed_ms(begin, finish)) / timed_messages;
    s.synchronize();
  } catch (...) {
    link.abort();  // or the stream would never be drained
    throw;
  }
  return result;
}

}  // namespace plait::comm::p2p
