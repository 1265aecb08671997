// A conversation about keys between a rank and rank 0, over a proven connection: one question, one answer, and so on. Each is a
// length (8 bytes, little-endian) and a sealed text of that many bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/rendezvous.h"
#include "comm/tcp/proof.h"
#include "comm/tcp/reception.h"

namespace plait::comm {

struct Question {
  enum class Kind : char { set = 's', wait = 'w', find = 'f', abort = 'a' };
  Kind kind = Kind::find;
  std::string key;
  std::string value;               // set; abort: the reason
  std::uint64_t milliseconds = 0;  // wait
};

struct Answer {
  enum class Kind : char { yes = 'y', no = 'n', error = 'e' };  // set, there; exists already, not there; CommError
  Kind kind = Kind::no;
  std::string text;  // the value, or the message of the error
};

std::string text_of(const Question& question);
std::string text_of(const Answer& answer);
Question question_from(std::string text);  // CommError
Answer answer_from(std::string text);      // CommError

// One end of a conversation: seals and opens, and buffers texts that are not fully sent or received. Never blocks.
class Conversation {
 public:
  static constexpr std::size_t longest_key = 4096;
  static constexpr std::size_t longest_text = Rendezvous::longest_value + longest_key + 64;

  Conversation(Proven connection, Proof::Side side);

  int descriptor() const { return socket_.get(); }
  void say(std::string_view text);
  // Sends as much as it can; true once nothing is left. CommError if the connection is lost.
  bool send();
  // The other end's next text, once it is complete. CommError if the connection is lost or the text is not the other end's.
  std::optional<std::string> hear();

 private:
  bool fill(std::size_t bytes);

  FileDescriptor socket_;
  Seal outgoing_seal_, incoming_seal_;
  std::string outgoing_, incoming_;
  std::size_t sent_ = 0;
};

}  // namespace plait::comm
