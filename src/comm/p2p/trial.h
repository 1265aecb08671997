// Tests a link before it is used, with messages whose pattern reveals corruption, and times it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/p2p/link.h"
#include "comm/p2p/mailbox.h"

namespace plait::comm::p2p {

// The pattern's byte `index` of message number `message` differs between neighbouring bytes, words, pages, slots and messages,
// so data that is missing, shifted, torn, stale or doubled shows. One end fills, the other looks for a wrong byte.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t message);
// The first byte that differs from the pattern, or -1.
std::int64_t find_wrong_byte(std::span<const std::byte> bytes, std::uint64_t message);

struct TrialResult {
  std::string problem;      // empty: every byte was right
  double microseconds = 0;  // per message of message_bytes, back to back, as the receiver sees it
};

// Both ends call it. Sends messages of at most `message_bytes` through every slot and around the ring, compares all bytes on
// the receiver's host, then times some. The sender reports nothing. CommError when messages do not arrive within `timeout`.
TrialResult synchronize_trial(Link& link, End end, Device device, std::size_t message_bytes, int slots,
                              std::chrono::milliseconds timeout);

}  // namespace plait::comm::p2p
