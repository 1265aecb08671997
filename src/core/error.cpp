#include "core/error.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "core/format.h"

namespace plait {
namespace {

std::string join(const std::vector<ConfigProblem>& problems) {
  std::string text = plural(problems.size(), "problem") + " in the input:";
  for (const ConfigProblem& p : problems) {
    text += "\n  " + p.path;
    if (!p.value.empty()) text += "=" + p.value;
    if (p.line > 0) text += " (line " + std::to_string(p.line) + ")";
    text += ": " + p.rule;
    if (!p.nearest.empty()) text += "; did you mean '" + p.nearest + "'?";
  }
  return text;
}

}  // namespace

ConfigError::ConfigError(const std::string& message) : Error(message) {}

ConfigError::ConfigError(std::vector<ConfigProblem> problems) : Error(join(problems)), problems_(std::move(problems)) {}

std::string to_string(const std::source_location& where) {
  std::string file = where.file_name();
  const auto src = file.rfind("/src/");
  if (src != std::string::npos) file = file.substr(src + 1);
  return file + ":" + std::to_string(where.line()) + " in " + where.function_name();
}

void require(bool condition, const char* message, std::source_location where) {
  if (!condition) throw InternalError(std::string(message) + " [" + to_string(where) + "]");
}

void require(bool condition, const std::string& message, std::source_location where) {
  require(condition, message.c_str(), where);
}

std::string error_text(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) {
    return "out of memory on the host: use fewer ranks on it or a smaller model, or raise the limit on this process's memory "
           "(ulimit -v)";
  }
  // std::thread throws this, with a message that names nothing.
  const auto* failed = dynamic_cast<const std::system_error*>(&error);
  if (failed && failed->code() == std::errc::resource_unavailable_try_again) {
    return std::string("cannot start a thread: ") + error.what() +
           "; raise the limits on processes (ulimit -u) and memory (ulimit -v), or use fewer ranks on this host";
  }
  return error.what();
}

std::string errno_text() { return std::strerror(errno); }

std::vector<ConfigProblem> first_problems(std::vector<ConfigProblem> problems, const std::string& what) {
  constexpr std::size_t most = 20;
  if (problems.size() <= most) return problems;
  const std::size_t more = problems.size() - most;
  problems.resize(most);
  problems.push_back({"and " + std::to_string(more) + " more", "", what, "", 0});
  return problems;
}

}  // namespace plait
