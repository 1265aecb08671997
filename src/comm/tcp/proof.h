// How the two ends of a new TCP connection prove to each other that they know a secret, before either believes anything else.
//
//   caller   -> listener   "plait-1", who it is, a random challenge                     44 bytes
//   listener -> caller     its own challenge                                            32
//   caller   -> listener   HMAC(secret, "caller", context, all of the above)            32
//   listener -> caller     HMAC(secret, "listener", the same)                           32
//
// The secret itself does not travel, an answer that was overheard is of no use for another challenge, and who answers as
// listener cannot be made to answer as caller. The caller is first, so that nobody who merely connects gets a digest to try
// guesses on. Neither end reads more than the proof, whose length is fixed, so nothing that a
// stranger sends is kept or looked at. Both derive a secret of this connection alone. The connection itself is as open as TCP
// is: who can change packets on the way can change what follows (comm/tcp/secret.h has a Seal against that).
#pragma once

#include <cstdint>
#include <string>

#include "comm/tcp/secret.h"
#include "core/file_descriptor.h"

namespace plait::comm {

// What both ends know beforehand, besides the address.
struct Credentials {
  Secret secret;
  std::string context;  // what the connection is for; a proof for another purpose is none
};

class Proof {
 public:
  enum class Side { caller, listener };
  enum class State { going_on, done, refused };

  // `number` says who the caller is; the listener learns it. The caller's `socket` may still be connecting.
  Proof(FileDescriptor socket, Side side, const Credentials& credentials, std::uint32_t number = 0);

  // Goes on as far as it can without waiting. To be called again when the socket is readable, and once when it is writable.
  State advance();
  int descriptor() const { return socket_.get(); }
  bool connecting() const { return step_ == Step::connecting; }  // waits to be writable
  const std::string& why() const { return why_; }                // it was refused

  // Once it is done.
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
