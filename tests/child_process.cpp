#include "child_process.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <stdexcept>
#include <utility>

namespace plait::test {
namespace {

std::map<std::string, std::function<void()>>& bodies() {
  static std::map<std::string, std::function<void()>> by_name;
  return by_name;
}

int run_body(const std::string& name) {
  const auto body = bodies().find(name);
  if (body == bodies().end()) {
    std::fprintf(stderr, "no child is called '%s'\n", name.c_str());
    return 2;
  }
  try {
    body->second();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child '%s' threw: %s\n", name.c_str(), error.what());
    return 1;
  }
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

}  // namespace

ChildProcess::ChildProcess(const std::string& name, std::function<void()> body) : name_(name) {
  if (!bodies().try_emplace(name, std::move(body)).second) throw std::logic_error("two children are called " + name);
}

int run_child(const ChildProcess& child) {
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

bool was_killed_by(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

}  // namespace plait::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && std::string(argv[1]) == "--child") return plait::test::run_body(argv[2]);
  const int status = RUN_ALL_TESTS();
  return status == 0 && testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? PLAIT_TEST_SKIPPED : status;
}
