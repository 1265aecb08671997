// How ranks find each other before they can communicate: a small key-value store that all ranks of a job share.
//
// In one process the store is memory; between processes of one host (or hosts with a shared file system) a private directory
// of files, mode 0700. Keys are written once.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace plait::comm {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;  // CommError if the key exists
  // Blocks until the key is set. CommError after `timeout`, naming the key and how long it waited, or at once after abort().
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // The value if it is there. Does not block, and also works after abort().
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // set and get for a shared pointer to an object, which one rank takes; between threads of one process (InternalError between
  // processes).
  virtual void set_object(const std::string& key, std::shared_ptr<void> object);
  virtual std::shared_ptr<void> take_object(const std::string& key, std::chrono::milliseconds timeout);
  // Makes get() fail with `reason` on every rank of the store. A rank that fails before it has joined a communicator calls this
  // so that the others do not wait for it. The first reason wins.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// One store for all rank threads of this process; share the returned pointer with them.
std::shared_ptr<Rendezvous> make_thread_rendezvous();

// `directory` must exist or be creatable (0700); all ranks name the same one, fresh for each job.
std::shared_ptr<Rendezvous> make_directory_rendezvous(const std::string& directory);

// Blocks until all `size` ranks called it with the same `name` (each name used once per job).
void rendezvous_barrier(Rendezvous& store, const std::string& name, int rank, int size, std::chrono::milliseconds timeout);

}  // namespace plait::comm
