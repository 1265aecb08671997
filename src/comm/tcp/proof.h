// The two ends of a new TCP connection prove to each other that they know a secret, before either believes anything else.
//
//   caller   -> listener   "plait-1", who it is, a random challenge                     44 bytes
//   listener -> caller     its own challenge                                            32
//   caller   -> listener   HMAC(secret, "caller", context, all of the above)            32
//   listener -> caller     HMAC(secret, "listener", the same)                           32
//
// The secret itself does not travel, an overheard answer is useless for another challenge, and a listener's answer cannot serve
// as a caller's. The caller is first, so that a stranger who merely connects gets no digest to try guesses on. Neither end
// reads more than the proof, whose length is fixed, so nothing else that a stranger sends is kept or looked at. Both derive a
// secret of this connection alone. The connection itself is as open as TCP is: anyone who can change packets on the way can
// change the data after the proof (a Seal protects against that).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/file.h"

namespace plait::comm {

// The secret that the processes of one job share, and the values computed from it. All cryptography is OpenSSL's.
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

// The data that both ends know beforehand, besides the address.
struct Credentials {
  Secret secret;
  std::string context;  // purpose of the connection; a proof for another purpose is refused
};

class Proof {
 public:
  enum class Side { caller, listener };
  enum class State { going_on, done, refused };

  // `number` identifies the caller; the listener learns it. The caller's `socket` may still be connecting.
  Proof(FileDescriptor socket, Side side, const Credentials& credentials, std::uint32_t number = 0);

  // Proceeds as far as it can without waiting. Call it again when the socket is readable, and once when it is writable.
  State advance();
  int descriptor() const { return socket_.get(); }
  bool connecting() const { return step_ == Step::connecting; }  // waits to be writable
  const std::string& why() const { return why_; }                // reason of a refusal

  // Valid once it is done.
  std::uint32_t number() const { return number_; }
  Secret session() const;
  FileDescriptor take_socket() { return std::move(socket_); }

 private:
  enum class Step { connecting, hello, challenge, caller_claim, listener_claim };

  bool receive();
  void send(const std::string& text);
  void expect(Step step, std::size_t bytes);
  void take_hello();
  void take_challenge();
  void take_claim_of(const char* side);
  State refuse(const std::string& why);
  Digest claim_of(const char* side) const;

  FileDescriptor socket_;
  const Side side_;
  const Credentials credentials_;
  std::uint32_t number_;
  State state_ = State::going_on;
  Step step_;
  std::size_t expected_ = 0;  // bytes of this step
  std::string received_, challenges_, why_;
};

}  // namespace plait::comm
