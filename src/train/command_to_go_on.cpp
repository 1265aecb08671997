#include "train/command_to_go_on.h"

#include <string_view>

#include "core/message.h"

namespace plait::train {
namespace {

constexpr std::string_view resume_option = "--resume";

}  // namespace

std::string command_line(const std::vector<std::string>& argv) {
  if (argv.empty()) return "plait train";
  std::string text;
  for (const std::string& word : argv) text += (text.empty() ? "" : " ") + shell_quoted(word);
  return text;
}

std::string command_to_fork(const std::filesystem::path& checkpoint) {
  return command_line({"plait", "train", "--init-from", checkpoint.string(), "--with-optimizer"});
}

std::string command_to_go_on(const TrainRequest& request, const std::filesystem::path& run_dir) {
  if (request.resume.empty() || request.argv.empty()) {
    return command_line({request.argv.empty() ? "plait" : request.argv.front(), "train", "--resume", run_dir.string()});
  }
  std::vector<std::string> argv = request.argv;
  for (std::size_t i = 0; i < argv.size(); ++i) {
    if (argv[i] == resume_option && i + 1 < argv.size()) argv[i + 1] = run_dir.string();
    if (argv[i].starts_with(std::string(resume_option) + "=")) argv[i] = std::string(resume_option) + "=" + run_dir.string();
  }
  return command_line(argv);
}

}  // namespace plait::train
