#include "comm/rendezvous.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "core/error.h"

namespace plait::comm {
namespace {

class ThreadRendezvous final : public Rendezvous {
 public:
  void set(const std::string& key, const std::string& value) override {
    {
      std::lock_guard lock(mutex_);
      if (!values_.emplace(key, value).second) throw CommError("rendezvous: key '" + key + "' is set already");
    }
    changed_.notify_all();
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const bool in_time = changed_.wait_for(lock, timeout, [&] { return abort_reason_ || values_.contains(key); });
    if (abort_reason_) throw CommError("rendezvous: gave up waiting for key '" + key + "': " + *abort_reason_);
    if (!in_time) {
      throw CommError("rendezvous: nobody set key '" + key + "' within " + std::to_string(timeout.count()) +
                      " ms; a rank did not start, died, or creates its groups in another order");
    }
    return values_.at(key);
  }

  std::optional<std::string> find(const std::string& key) override {
    std::lock_guard lock(mutex_);
    const auto it = values_.find(key);
    return it == values_.end() ? std::nullopt : std::optional(it->second);
  }

  void set_object(const std::string& key, std::shared_ptr<void> object) override {
    {
      std::lock_guard lock(mutex_);
      objects_[key] = std::move(object);
    }
    set(key, "");
  }

  std::shared_ptr<void> take_object(const std::string& key, std::chrono::milliseconds timeout) override {
    get(key, timeout);
    std::lock_guard lock(mutex_);
    auto object = objects_.extract(key);
    if (object.empty()) throw CommError("rendezvous: the object of key '" + key + "' has been taken already");
    return std::move(object.mapped());
  }

  void abort(const std::string& reason) noexcept override {
    {
      std::lock_guard lock(mutex_);
      if (!abort_reason_) abort_reason_ = reason;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::shared_ptr<void>> objects_;
  std::optional<std::string> abort_reason_;
};

}  // namespace

void Rendezvous::set_object(const std::string& key, std::shared_ptr<void>) {
  throw InternalError("rendezvous: key '" + key + "': objects pass between threads only");
}
std::shared_ptr<void> Rendezvous::take_object(const std::string& key, std::chrono::milliseconds) {
  throw InternalError("rendezvous: key '" + key + "': objects pass between threads only");
}

std::shared_ptr<Rendezvous> make_thread_rendezvous() { return std::make_shared<ThreadRendezvous>(); }

void rendezvous_barrier(Rendezvous& store, const std::string& name, int rank, int size, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto key = [&](int of_rank) { return "barrier/" + name + "/" + std::to_string(of_rank); };
  store.set(key(rank), "");
  for (int peer = 0; peer < size; ++peer) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    store.get(key(peer), std::max(left, std::chrono::milliseconds(0)));
  }
}

}  // namespace plait::comm
