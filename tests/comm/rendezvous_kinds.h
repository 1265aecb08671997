// Tests of what works over every kind of rendezvous.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "comm/rendezvous.h"
#include "core/temporary_directory.h"

namespace plait::comm::test {

// Every rank gets its own handle of one store: the same object for threads, another one on the same memory or directory for
// processes.
class EveryRendezvous : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<Rendezvous> store() {
    const std::string kind = GetParam();
    if (kind == "thread") return of_threads_;
    return kind == "memory" ? make_memory_rendezvous(memory_.descriptor())
                            : make_directory_rendezvous(directory_.path() + "/store");
  }

 private:
  plait::test::TemporaryDirectory directory_;
  RendezvousMemory memory_;
  std::shared_ptr<Rendezvous> of_threads_ = make_thread_rendezvous();
};

inline auto rendezvous_kinds() { return testing::Values("thread", "memory", "directory"); }
inline std::string rendezvous_kind(const testing::TestParamInfo<const char*>& kind) { return kind.param; }

}  // namespace plait::comm::test
