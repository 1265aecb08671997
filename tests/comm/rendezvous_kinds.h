// Tests of what works over every kind of rendezvous.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "comm/rendezvous.h"
#include "core/temporary_directory.h"

namespace plait::comm::test {

// Every rank gets its own handle of one store: the same object for threads, another one on the same directory for processes.
class EveryRendezvous : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<Rendezvous> store() {
    return std::string(GetParam()) == "thread" ? in_memory_ : make_directory_rendezvous(directory_.path() + "/store");
  }

 private:
  plait::test::TemporaryDirectory directory_;
  std::shared_ptr<Rendezvous> in_memory_ = make_thread_rendezvous();
};

inline auto rendezvous_kinds() { return testing::Values("thread", "directory"); }
inline std::string rendezvous_kind(const testing::TestParamInfo<const char*>& kind) { return kind.param; }

}  // namespace plait::comm::test
