// Tries a link before it is used, with messages of a pattern that would show corruption, and times it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/p2p/link.h"
#include "comm/p2p/mailbox.h"

namespace plait::comm::p2p {

// Byte `index` of message number `message`: neighbouring bytes, words, pages, slots and messages all differ, so that what is
// missing, shifted, torn, stale or doubled shows. fill_pattern and find_wrong_byte are its two sides.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t message);
// The first byte that is not what the pattern says, or -1.
std::int64_t find_wrong_byte(std::span<const std::byte> bytes, std::uint64_t message);

struct TrialResult {
  std::string problem;      // empty: every byte was right
  double microseconds = 0;  // per message of message_bytes, back to back, as the receiver sees it
};

// Both ends call it. Sends messages of `message_bytes` and less through every slot and around the ring, compares all bytes on
// the receiver's host, then times some. A sender has nothing to report. CommError when messages do not arrive within `timeout`.
TrialResult synchronize_trial(Link& link, End end, Device device, std::size_t message_bytes, int slots,
                              std::chrono::milliseconds timeout);

}  // namespace plait::comm::p2p
