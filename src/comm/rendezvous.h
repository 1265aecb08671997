// How ranks find each other before they can communicate: a small key-value store that all ranks of a job share.
//
// In one process the store is memory; between processes of one host (or hosts with a shared file system) a private directory
// of files, mode 0700. Keys are written once. What ranks say there is the business of meeting.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace plait::comm {

class Rendezvous {
 public:
  // Of a value; whoever reads one refuses what is longer before it takes memory for it.
  static constexpr std::size_t longest_value = std::size_t{192} << 20;

  virtual ~Rendezvous() = default;
  virtual bool try_set(const std::string& key, const std::string& value) = 0;  // false if the key exists
  void set(const std::string& key, const std::string& value);                  // CommError if the key exists
  // Blocks until the key is set, for `timeout` at most: nullopt then. CommError, naming the key, at once after abort().
  virtual std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // The same, with a CommError that names the key and how long it waited instead of nullopt.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  // The value if it is there. Does not block, and also works after abort().
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // set and get for a shared pointer to an object, which one rank takes; between threads of one process (InternalError between
  // processes).
  virtual void set_object(const std::string& key, std::shared_ptr<void> object);
  virtual std::shared_ptr<void> take_object(const std::string& key, std::chrono::milliseconds timeout);
  // Makes wait() and get() fail with `reason` on every rank of the store. A rank that fails before it has joined a communicator
  // calls this so that the others do not wait for it. The first reason wins.
  virtual void abort(const std::string& reason) noexcept = 0;
  void check();  // CommError with the reason after abort()
  // The CommError of get() where wait() gave nothing.
  [[noreturn]] void throw_missing(const std::string& key, std::chrono::milliseconds waited) const;

 protected:
  virtual std::string place() const { return ""; }  // where the keys are, for messages: " in /tmp/x"
};

// One store for all rank threads of this process; share the returned pointer with them.
std::shared_ptr<Rendezvous> make_thread_rendezvous();

// `directory` must exist or be creatable (0700); all ranks name the same one, fresh for each job.
std::shared_ptr<Rendezvous> make_directory_rendezvous(const std::string& directory);

}  // namespace plait::comm
