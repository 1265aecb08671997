// Tests of what works over every kind of rendezvous.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "comm/rendezvous.h"
#include "core/error.h"
#include "core/temporary_directory.h"

namespace plait::comm::test {

// What a CommError says that `action` throws.
inline std::string comm_error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CommError& error) {
    return error.what();
  }
  return "no CommError";
}

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
