// The plait program.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <iostream>
#include <string>

#include "commands.h"
#include "core/error.h"
#include "core/message.h"
#include "launch/launch.h"
#include "launch/stop_signals.h"
#include "train/report/environment.h"
#include "usage.h"

int main(int argc, char** argv) {
  // A write beyond `ulimit -f` then fails as one on a full disk does, and its error names the file.
  std::signal(SIGXFSZ, SIG_IGN);
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
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::cerr << plait::usage_text(app, error);
    return 2;  // CLI11's own codes are many
  } catch (const plait::launch::Interrupted& error) {
    if (*error.what()) plait::message_to_stderr(error.what());
    plait::launch::end_by(error.signal());
  } catch (const plait::ConfigError& error) {
    plait::message_to_stderr(error.what());
    return 2;
  } catch (const std::exception& error) {
    plait::message_to_stderr(error.what());
    return 3;
  }
  return status;
}
