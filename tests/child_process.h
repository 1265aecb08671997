// What a test runs in a process of its own: the test program starts itself again, and its main (child_process.cpp) then does
// nothing but the child's body.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace plait::test {

// To be defined at namespace scope, so that the started program finds it by name. The body may use EXPECT and ASSERT.
class ChildProcess {
 public:
  ChildProcess(const std::string& name, std::function<void()> body);

  // To start this program (/proc/self/exe) with. Its exit status is 0 if the body neither failed an expectation nor threw.
  std::vector<std::string> arguments() const { return {"test", "--child", name_}; }

 private:
  std::string name_;  // unique in the program
};

// Runs `child` and returns how it ended, as waitpid tells.
int run_child(const ChildProcess& child);
bool was_killed_by(int status, int signal);

}  // namespace plait::test
