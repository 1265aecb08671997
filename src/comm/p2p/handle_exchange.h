// How two ranks pass each other what makes memory visible: text through the job's rendezvous, file descriptors over a Unix
// socket.
//
// The socket has a random name in the abstract namespace, so no file is left behind; it takes one connection, from this user
// (SO_PEERCRED) and with a token that is only known through the rendezvous. No length that arrives is trusted.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "comm/rendezvous.h"

namespace plait::comm::p2p {

// Owns a file descriptor; -1 is none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

class HandleExchange {
 public:
  HandleExchange(Rendezvous& store, std::chrono::milliseconds timeout) : store_(store), timeout_(timeout) {}

  // Each name is used once in a job. CommError when the peer does not arrive within the time limit.
  void give_text(const std::string& name, const std::string& text) { store_.set(name, text); }
  std::string take_text(const std::string& name) { return store_.get(name, timeout_); }
  // A shared pointer to an object, between threads of one process; InternalError if the rendezvous is between processes.
  void give_object(const std::string& name, std::shared_ptr<void> object) { store_.set_object(name, std::move(object)); }
  std::shared_ptr<void> take_object(const std::string& name) { return store_.take_object(name, timeout_); }
  // Sends `descriptor` to the one peer that takes it, and blocks until the peer has it. The caller keeps its own copy.
  void give_descriptor(const std::string& name, int descriptor);
  FileDescriptor take_descriptor(const std::string& name);

  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  Rendezvous& store_;
  std::chrono::milliseconds timeout_;
};

}  // namespace plait::comm::p2p
