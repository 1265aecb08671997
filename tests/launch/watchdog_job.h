// A training job in processes of its own, in which ranks can be hurt; and what it leaves behind.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "launch/launch_fixtures.h"
#include "test_paths.h"

namespace plait::launch::test {

using Clock = std::chrono::steady_clock;

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Condition>
bool within(std::chrono::milliseconds limit, Condition condition) {
  const auto deadline = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// Names of abstract Unix sockets of ours ("@plait-..."), and of files of shared memory.
inline std::set<std::string> shared_names() {
  std::set<std::string> names;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (const auto at = line.find("@plait-"); at != std::string::npos) names.insert(line.substr(at));
  }
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm", ignored)) names.insert(file.path().string());
  return names;
}

struct JobEnd {
  int status = -1;                          // of the one that was started first; -1: killed, or it hung
  std::chrono::duration<double> seconds{};  // from start_clock()
};

// Environment variables name the processes of a job: all have its folder as TMPDIR.
class WatchedJob {
 public:
  WatchedJob() {
    std::filesystem::create_directory(folder() / "tmp");
    std::ofstream text(folder() / "text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i << ": the quick brown fox jumps over the lazy dog\n";
  }
  WatchedJob(const WatchedJob&) = delete;
  WatchedJob& operator=(const WatchedJob&) = delete;
  ~WatchedJob() {
    for (const auto& [process, rank] : processes()) ::kill(process, SIGKILL);
    for (const pid_t process : started_) ::waitpid(process, nullptr, 0);
  }

  std::filesystem::path folder() const { return directory_.path(); }

  // Runs `plait train` of a very small GPT for a very long time; returns at once. `set`: further lines of configuration, as
  // YAML.
  void start(const std::string& set, const std::vector<std::string>& environment = {}) {
    const std::filesystem::path config = folder() / "config.yaml";
    std::ofstream(config) << "run: {name: run, dir: " << (folder() / "runs").string() << "}\n"
                          << "model: {layers: 2, hidden: 16, heads: 2, ffn: 32}\n"
                          << "data: {train: [" << (folder() / "text.txt").string()
                          << "], tokenizer: bytes, sequence_length: 8}\n"
                          << (set.find("comm:") == std::string::npos ? "comm: {timeout_s: 6}\n" : "")
                          << "log: {every: 5, tensorboard: false}\n"
                          << set << "\n";
    std::vector<std::string> variables = environment;
    for (char** variable = environ; *variable; ++variable) {
      if (!std::string(*variable).starts_with("TMPDIR=")) variables.emplace_back(*variable);
    }
    variables.push_back(marker());
    std::vector<std::string> arguments = {test_paths::plait, "train", config.string()};
    const auto pointers = [](std::vector<std::string>& strings) {
      std::vector<char*> result;
      for (std::string& text : strings) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    const std::string output = (folder() / ("output-" + std::to_string(started_.size()))).string();
    const std::string errors = (folder() / ("errors-" + std::to_string(started_.size()))).string();
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t process = 0;
    if (::posix_spawn(&process, test_paths::plait, &files, nullptr, pointers(arguments).data(), pointers(variables).data()) !=
        0) {
      throw std::runtime_error(std::string("cannot start ") + test_paths::plait);
    }
    posix_spawn_file_actions_destroy(&files);
    started_.push_back(process);
  }

  // Lines that the run has logged so far; 0 before it runs.
  int logged() const {
    const std::string text = contents(folder() / "runs" / "run" / "metrics.jsonl");
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  // Waits until the run is well under way.
  bool under_way(int lines = 4) const {
    return within(std::chrono::seconds(60), [&] { return logged() >= lines; });
  }

  // What runs of this job, with the rank that it is by `variable` (-1: none).
  std::map<pid_t, int> processes(const std::string& variable = "PLAIT_RANK") const {
    std::map<pid_t, int> result;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string environment = '\0' + contents(entry.path() / "environ");  // empty of a zombie
      if (environment.find('\0' + marker() + '\0') == std::string::npos) continue;
      const auto at = environment.find('\0' + variable + "=");
      result[std::stoi(name)] = at == std::string::npos ? -1 : std::stoi(environment.substr(at + variable.size() + 2));
    }
    return result;
  }
  pid_t process_of(int rank, const std::string& variable = "PLAIT_RANK") const {
    for (const auto& [process, number] : processes(variable)) {
      if (number == rank) return process;
    }
    throw std::runtime_error("rank " + std::to_string(rank) + " does not run");
  }

  // From now on it counts how long the job goes on.
  void start_clock() {
    for (const std::string& name : shared_names()) {
      if (!names_before_.contains(name)) names_.insert(name);
    }
    clock_ = Clock::now();
  }

  // Waits for the end of the process that start() started as number `index`.
  JobEnd wait(std::size_t index = 0, std::chrono::seconds limit = std::chrono::seconds(60)) {
    JobEnd end;
    int status = 0;
    const bool over = within(limit, [&] { return ::waitpid(started_[index], &status, WNOHANG) == started_[index]; });
    end.seconds = Clock::now() - clock_;
    if (over && WIFEXITED(status)) end.status = WEXITSTATUS(status);
    return end;
  }
  std::string errors(std::size_t index = 0) const { return contents(folder() / ("errors-" + std::to_string(index))); }

  // Everything that is left of the job but its run directory: processes, temporary files, shared memory, sockets. "" if nothing
  // is.
  std::string leftovers() const {
    std::string text;
    for (const auto& [process, rank] : processes()) text += "process " + std::to_string(process) + "; ";
    for (const auto& entry : std::filesystem::directory_iterator(folder() / "tmp")) text += entry.path().string() + "; ";
    const auto left = [&] {
      std::string names;
      for (const std::string& name : shared_names()) {
        if (names_.contains(name)) names += name + "; ";
      }
      return names;
    };
    // Names that came with this job have to go with it. (Those of other jobs on the machine come and go, too.)
    within(std::chrono::seconds(5), [&] { return left().empty(); });
    return text + left();
  }

 private:
  std::string marker() const { return "TMPDIR=" + (folder() / "tmp").string(); }

  plait::test::TemporaryDirectory directory_;
  std::vector<pid_t> started_;
  const std::set<std::string> names_before_ = shared_names();
  std::set<std::string> names_;  // that came up since
  Clock::time_point clock_ = Clock::now();
};

}  // namespace plait::launch::test
