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
  // Blocks until somebody set the key; CommError naming key and waited time after `timeout`, or at once after abort().
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // The value if it is there; does not block, and works after abort() too.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // set and get with a share of an object, which one rank takes; between threads of one process (InternalError between
  // processes).
  virtual void set_object(const std::string& key, std::shared_ptr<void> object);
  virtual std::shared_ptr<void> take_object(const std::string& key, std::chrono::milliseconds timeout);
  // Makes get() fail on every rank of the store, with `reason`: a rank that fails before it joined a communicator calls this
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
