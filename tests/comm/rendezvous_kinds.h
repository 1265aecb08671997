// Tests of what works over every kind of rendezvous.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>

#include "comm/rendezvous.h"
#include "comm/tcp/rendezvous.h"
#include "core/temporary_directory.h"

namespace plait::comm::test {

// On loopback, at a free port.
class TcpStore {
 public:
  std::shared_ptr<TcpRendezvousServer> serve() {
    auto server = serve_tcp_rendezvous(spec, {spec.host});
    spec.port = server->port();
    return server;
  }
  std::shared_ptr<Rendezvous> join() const { return join_tcp_rendezvous(spec); }

  TcpRendezvousSpec spec = {
      .host = "127.0.0.1", .port = 0, .token = Secret::from_token("a token of this test"), .ranks = 8, .job = "test"};
};

// Every rank gets its own handle of one store: the same object for threads, another one on the same memory or directory for
// processes. Over TCP the first is rank 0's, which serves the others.
class EveryRendezvous : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<Rendezvous> store() {
    const std::string kind = GetParam();
    if (kind == "thread") return of_threads_;
    if (kind == "memory") return make_memory_rendezvous(memory_.descriptor());
    if (kind == "directory") return make_directory_rendezvous(directory_.path() + "/store");
    std::lock_guard lock(mutex_);
    if (server_) return tcp_.join();
    return server_ = tcp_.serve();
  }

 private:
  plait::test::TemporaryDirectory directory_;
  RendezvousMemory memory_;
  std::shared_ptr<Rendezvous> of_threads_ = make_thread_rendezvous();
  std::mutex mutex_;
  TcpStore tcp_;
  std::shared_ptr<Rendezvous> server_;
};

inline auto rendezvous_kinds() { return testing::Values("thread", "memory", "directory", "tcp"); }
inline std::string rendezvous_kind(const testing::TestParamInfo<const char*>& kind) { return kind.param; }

}  // namespace plait::comm::test
