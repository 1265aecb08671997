// Runs the ranks of a test as processes: the test program starts itself once per rank, with the rank's place in the
// environment.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "child_process.h"
#include "comm/rendezvous.h"
#include "core/temporary_directory.h"

namespace plait::comm::test {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Ended {
  int status = 0;      // as waitpid tells
  std::string output;  // standard output and standard error
};

// Runs `child` as `size` processes that share a fresh rendezvous directory.
inline std::vector<Ended> run_processes(const plait::test::ChildProcess& child, int size,
                                        const std::vector<std::string>& more_environment = {}) {
  const plait::test::TemporaryDirectory directory;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> environment = {"PLAIT_TEST_RANK=" + std::to_string(rank),
                                            "PLAIT_TEST_SIZE=" + std::to_string(size),
                                            "PLAIT_TEST_RENDEZVOUS=" + directory.path() + "/store"};
    environment.insert(environment.end(), more_environment.begin(), more_environment.end());
    for (char** variable = environ; *variable; ++variable) environment.emplace_back(*variable);
    std::vector<std::string> arguments = child.arguments();
    const auto pointers = [](std::vector<std::string>& strings) {
      std::vector<char*> result;
      for (std::string& text : strings) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    const std::string log = directory.path() + "/log" + std::to_string(rank);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    pid_t process = 0;
    EXPECT_EQ(
        posix_spawn(&process, "/proc/self/exe", &files, nullptr, pointers(arguments).data(), pointers(environment).data()), 0);
    posix_spawn_file_actions_destroy(&files);
    processes.push_back(process);
  }
  std::vector<Ended> ended(processes.size());
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    EXPECT_EQ(waitpid(processes[rank], &ended[rank].status, 0), processes[rank]);
    ended[rank].output = text_of(directory.path() + "/log" + std::to_string(rank));
  }
  return ended;
}

// Which rank a child is that run_processes() has started.
struct ProcessPlace {
  int rank = std::atoi(std::getenv("PLAIT_TEST_RANK"));
  int size = std::atoi(std::getenv("PLAIT_TEST_SIZE"));
  std::shared_ptr<Rendezvous> store = make_directory_rendezvous(std::getenv("PLAIT_TEST_RENDEZVOUS"));
};

}  // namespace plait::comm::test
