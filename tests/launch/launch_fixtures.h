// What tests of launching share: directories and environment variables that last as long as the objects, and a group of all
// ranks.
#pragma once

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "child_process.h"
#include "comm/make_communicator.h"
#include "core/temporary_directory.h"
#include "launch/launch.h"

namespace plait::launch::test {

using plait::test::TemporaryDirectory;

// Joins all ranks of a launched job as one group.
inline std::shared_ptr<comm::Communicator> join(const RankContext& context) {
  comm::GroupSpec spec;
  spec.name = "job";
  spec.rank = context.rank;
  spec.size = context.size;
  spec.device = context.device;
  return make_communicator(spec, *context.rendezvous);
}

// Runs `child` in a process of its own and returns how it ended, as waitpid tells.
inline int run_child(const plait::test::ChildProcess& child) {
  std::vector<std::string> arguments = child.arguments();
  std::vector<char*> pointers;
  for (std::string& text : arguments) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  pid_t process = 0;
  int status = -1;
  if (::posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ) == 0) {
    ::waitpid(process, &status, 0);
  }
  return status;
}
inline bool was_killed_by(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

// Sets (or, without a value, removes) a variable; the destructor restores what was there.
class EnvironmentVariable {
 public:
  EnvironmentVariable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* text = getenv(name_.c_str())) previous_ = text;
    assign(value);
  }
  EnvironmentVariable(EnvironmentVariable&& other) noexcept
      : name_(std::move(other.name_)), previous_(std::move(other.previous_)) {
    other.name_.clear();
  }
  EnvironmentVariable& operator=(EnvironmentVariable&&) = delete;
  ~EnvironmentVariable() {
    if (!name_.empty()) assign(previous_);
  }

 private:
  void assign(const std::optional<std::string>& value) {
    if (value) {
      setenv(name_.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  std::string name_;
  std::optional<std::string> previous_;
};

}  // namespace plait::launch::test
