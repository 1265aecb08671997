// The plait program.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <streambuf>
#include <string>
#include <system_error>

#include "commands.h"
#include "core/error.h"
#include "core/file.h"
#include "core/message.h"
#include "launch/launch.h"
#include "launch/stop_signals.h"
#include "train/report/environment.h"
#include "usage.h"

namespace plait {
namespace {

[[noreturn]] void output_failed(const std::string& why) { throw Error("cannot write to standard output: " + why); }

// Replaces std::cout's buffer while it exists. A failed write is an error at once, with the message of a failed file.
class CheckedOutput final : public std::streambuf {
 public:
  CheckedOutput() : usual_(std::cout.rdbuf(this)) { std::cout.exceptions(std::ios::badbit); }
  CheckedOutput(const CheckedOutput&) = delete;
  CheckedOutput& operator=(const CheckedOutput&) = delete;
  ~CheckedOutput() override {
    std::cout.exceptions(std::ios::goodbit);
    std::cout.rdbuf(usual_);
  }

 private:
  std::streamsize xsputn(const char* text, std::streamsize length) override {
    const auto bytes = static_cast<std::size_t>(length);
    if (std::fwrite(text, 1, bytes, stdout) != bytes) output_failed(errno_text());
    return length;
  }
  int_type overflow(int_type c) override {
    if (!traits_type::eq_int_type(c, traits_type::eof()) && std::fputc(c, stdout) == EOF) output_failed(errno_text());
    return traits_type::not_eof(c);
  }
  int sync() override {
    if (std::fflush(stdout) != 0) output_failed(errno_text());
    return 0;
  }

  std::streambuf* const usual_;
};

// A file that is opened must not get the number of a standard stream that the parent process has closed, or messages would go
// into it. The replacement fails like a closed descriptor.
void keep_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int place = ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Runs the command that the arguments name, to the last byte of its output.
void run(CLI::App& app, int argc, char** argv) {
  const CheckedOutput checked;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw;
    app.exit(error);  // --help, --version
  } catch (const std::filesystem::filesystem_error& error) {
    throw_file_error("use", error.path1(), error.code().value());
  } catch (const std::system_error& error) {
    if (!std::ferror(stdout)) throw;
    output_failed(error.code().message());  // from fmt::print
  }
  if (std::ferror(stdout)) output_failed("a part of it is lost");  // of lines that went on; nobody has kept why
  std::cout.flush();
}

}  // namespace
}  // namespace plait

int main(int argc, char** argv) {
  plait::keep_standard_descriptors();
  // A write beyond `ulimit -f` then fails like one on a full disk, and its error names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  // The parent process may ignore it, and then no child could be waited for.
  std::signal(SIGCHLD, SIG_DFL);
  // Ranks, data files and peers take descriptors; the usual 1024 are for programs that call select().
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  CLI::App app{"plait: trains transformers with data, tensor and pipeline parallelism in any combination"};
  app.name("plait");
  app.formatter(plait::help_formatter());
  app.set_version_flag("--version", [] { return plait::train::version_text(); });
  app.require_subcommand(1);
  int status = 0;
  plait::add_train_command(app, status, argc, argv);
  plait::add_bench_command(app, status, argc, argv);
  plait::add_verify_command(app, status, argc, argv);
  plait::add_study_command(app, status, argc, argv);
  plait::add_eval_command(app, status, argc, argv);
  plait::add_sample_command(app, status);
  plait::add_import_commands(app, status);
  plait::add_data_command(app, status);
  plait::add_plan_command(app, status);
  plait::add_topo_command(app, status);
  plait::add_help_command(app, status);
  try {
    plait::run(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    std::cerr << plait::usage_text(app, error);
    return 2;  // CLI11 has many codes of its own
  } catch (const plait::launch::Interrupted& error) {
    if (*error.what()) plait::message_to_stderr(error.what());
    plait::launch::end_by(error.signal());
  } catch (const plait::ConfigError& error) {
    plait::message_to_stderr(error.what());
    return 2;
  } catch (const std::exception& error) {
    plait::message_to_stderr(plait::error_text(error));
    return 3;
  }
  return status;
}
