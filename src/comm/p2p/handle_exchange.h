// Passes the handles that make memory visible between two ranks: as JSON in a meeting of the two, and file descriptors over a
// Unix socket.
//
// The socket has a random name in the abstract namespace, so no file is left behind. It accepts one connection, from this user
// (SO_PEERCRED) and with a token that only the meeting passes on. No received length is trusted.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "comm/meeting.h"
#include "core/file.h"

namespace plait::comm::p2p {

class HandleExchange {
 public:
  explicit HandleExchange(Meeting& meeting) : meeting_(meeting) {}  // of two ranks; outlives this

  // Each name is used once in a job. CommError when the peer does not arrive within the meeting's time limit.
  template <typename T>
  void give(const std::string& name, const T& word) {
    meeting_.say(name, word);
  }
  template <typename T>
  T take(const std::string& name) {
    return meeting_.hear<T>(name, meeting_.peer());
  }
  // Throws the CommError for a word that cannot be used.
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    meeting_.refuse(name, meeting_.peer(), why);
  }
  // A shared pointer to an object, between threads of one process; InternalError if the rendezvous is between processes.
  void give_object(const std::string& name, std::shared_ptr<void> object) { meeting_.give_object(name, std::move(object)); }
  std::shared_ptr<void> take_object(const std::string& name) { return meeting_.take_object(name, meeting_.peer()); }
  // Sends `descriptor` to the one peer that takes it, and blocks until the peer has it. The caller keeps its own copy.
  void give_descriptor(const std::string& name, int descriptor);
  FileDescriptor take_descriptor(const std::string& name);

 private:
  Meeting& meeting_;
};

}  // namespace plait::comm::p2p
