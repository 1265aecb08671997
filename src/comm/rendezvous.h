// A rendezvous lets ranks find each other before they can communicate: a small key-value store that all ranks of a job share.
//
// In one process the store is memory. Between processes of one launcher it is shared memory without a name; between processes
// started by something else a private directory of files, mode 0700, on one host or a shared file system; between any hosts,
// rank 0 keeps it and serves it over TCP (comm/tcp/rendezvous.h). Keys are written once. The contents are secret: only the
// ranks of the job can read them. meeting.h defines what ranks write there.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace plait::comm {

// The store is gone, together with the rank that kept it.
class RendezvousLostError : public CommError {
 public:
  using CommError::CommError;
};

class Rendezvous {
 public:
  // The longest value. Readers refuse longer ones before they allocate memory for them.
  static constexpr std::size_t longest_value = std::size_t{192} << 20;

  virtual ~Rendezvous() = default;
  virtual bool try_set(const std::string& key, const std::string& value) = 0;  // false if the key exists
  void set(const std::string& key, const std::string& value);                  // CommError if the key exists
  // Blocks until the key is set; nullopt after `timeout`. After abort(), CommError at once, naming the key.
  virtual std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // wait(), but a time-out is a CommError that names the key and how long it waited.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  // The value if there is one. Does not block, and also works after abort().
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // set and get for a shared pointer to an object, which only one rank takes. Between threads of one process only (otherwise
  // InternalError).
  virtual void set_object(const std::string& key, std::shared_ptr<void> object);
  virtual std::shared_ptr<void> take_object(const std::string& key, std::chrono::milliseconds timeout);
  // Makes wait() and get() fail with `reason` on every rank of the store. A rank that fails before it has joined a communicator
  // calls this so that the others do not wait for it. The first reason wins.
  virtual void abort(const std::string& reason) noexcept = 0;
  void check();  // CommError with the reason after abort()
  // Throws the CommError for keys that `who` did not set in time.
  [[noreturn]] void throw_missing(const std::vector<std::string>& keys, std::chrono::milliseconds waited,
                                  const std::string& who) const;

 protected:
  virtual std::string place() const { return ""; }  // where the keys are, for messages: " in /tmp/x"
};

// One store for all rank threads of this process; share the returned pointer with them.
std::shared_ptr<Rendezvous> make_thread_rendezvous();

// Shared memory without a name: it goes with the last process that has its descriptor, however that process ends.
class RendezvousMemory {
 public:
  RendezvousMemory();                                   // CommError if none is available
  int descriptor() const { return descriptor_.get(); }  // close-on-exec; a child that inherits it can use it

 private:
  FileDescriptor descriptor_;
};

// The store in a RendezvousMemory, whose descriptor may be inherited; the descriptor is not needed any more after the call.
std::shared_ptr<Rendezvous> make_memory_rendezvous(int descriptor);

// `directory` must exist or be creatable (0700); all ranks name the same one, a fresh one for each job.
std::shared_ptr<Rendezvous> make_directory_rendezvous(const std::string& directory);

class PolledRendezvous : public Rendezvous {
 public:
  std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) final;

 protected:
  virtual std::optional<std::string> abort_reason() = 0;  // nullopt before abort()
};

}  // namespace plait::comm
