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
// change the data after the proof (comm/tcp/secret.h has a Seal against that).
#pragma once

#include <cstdint>
#include <string>

#include "comm/tcp/secret.h"
#include "core/file.h"

namespace plait::comm {

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
