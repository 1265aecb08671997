// The secret that the processes of one job share, and the values computed from it. All cryptography is OpenSSL's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plait::comm {

using Digest = std::array<std::byte, 32>;

// Constant time, so that the duration does not reveal how much of a guess was right.
bool equal_in_constant_time(const Digest& a, const Digest& b);

// 32 random bytes, also used as a challenge. CommError if the system has none.
Digest random_digest();

class Secret {
 public:
  explicit Secret(const Digest& key) : key_(key) {}
  static Secret random() { return Secret(random_digest()); }
  static Secret from_token(std::string_view token);  // of any length

  const Digest& key() const { return key_; }
  Digest authenticate(std::string_view message) const;  // HMAC-SHA-256
  Secret derive(std::string_view purpose) const { return Secret(authenticate(purpose)); }

 private:
  Digest key_;
};

// One direction of a conversation, sealed message by message (AES-256-GCM): a message that was changed, left out, repeated,
// reordered or forged does not open. Each end has one Seal per direction; both start with the same secret, which nothing else
// uses.
class Seal {
 public:
  static constexpr std::size_t tag_bytes = 16;  // the length added to a sealed message

  explicit Seal(const Secret& secret) : secret_(secret) {}
  std::string close(std::string_view message);
  std::string open(std::string_view sealed);  // CommError if it is not the next message of the other end

 private:
  std::string apply(bool closing, std::string_view text, std::string_view tag, std::string& tag_out);

  Secret secret_;
  std::uint64_t count_ = 0;  // of messages
};

}  // namespace plait::comm
