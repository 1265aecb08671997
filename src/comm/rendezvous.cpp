#include "comm/rendezvous.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace plait::comm {
namespace {

class ThreadRendezvous final : public Rendezvous {
 public:
  bool try_set(const std::string& key, const std::string& value) override {
    {
      std::lock_guard lock(mutex_);
      if (!values_.emplace(key, value).second) return false;
    }
    changed_.notify_all();
    return true;
  }

  std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const bool in_time = changed_.wait_for(lock, timeout, [&] { return abort_reason_ || values_.contains(key); });
    if (abort_reason_) throw CommError("rendezvous: gave up waiting for key '" + key + "': " + *abort_reason_);
    return in_time ? std::optional(values_.at(key)) : std::nullopt;
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

void Rendezvous::set(const std::string& key, const std::string& value) {
  if (!try_set(key, value)) throw CommError("rendezvous: key '" + key + "' is set already" + place());
}

std::string Rendezvous::get(const std::string& key, std::chrono::milliseconds timeout) {
  if (auto value = wait(key, timeout)) return *std::move(value);
  throw_missing({key}, timeout, "a rank");
}

void Rendezvous::throw_missing(const std::vector<std::string>& keys, std::chrono::milliseconds waited,
                               const std::string& who) const {
  std::string names;
  for (const std::string& key : keys) names += (names.empty() ? "'" : ", '") + key + "'";
  throw CommError("rendezvous: nobody set " + std::string(keys.size() == 1 ? "key " : "keys ") + names + place() + " within " +
                  std::to_string(waited.count()) + " ms; " + who + " did not start, died, or went another way");
}

void Rendezvous::check() { static_cast<void>(wait("check", std::chrono::milliseconds(0))); }

void Rendezvous::set_object(const std::string& key, std::shared_ptr<void>) {
  throw InternalError("rendezvous: key '" + key + "': objects pass between threads only");
}
std::shared_ptr<void> Rendezvous::take_object(const std::string& key, std::chrono::milliseconds) {
  throw InternalError("rendezvous: key '" + key + "': objects pass between threads only");
}

std::shared_ptr<Rendezvous> make_thread_rendezvous() { return std::make_shared<ThreadRendezvous>(); }

std::optional<std::string> PolledRendezvous::wait(const std::string& key, std::chrono::milliseconds timeout) {
  using std::chrono::microseconds;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (auto pause = microseconds(200);; pause = std::min(pause * 3 / 2, microseconds(20'000))) {
    if (const auto reason = abort_reason()) {
      throw CommError("rendezvous: gave up waiting for key '" + key + "': " + *reason);
    }
    if (auto value = find(key)) return value;
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace plait::comm
