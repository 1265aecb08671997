// The plait program.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>
#include <string>

#include "commands.h"
#include "core/error.h"
#include "launch/launch.h"
#include "launch/stop_signals.h"
#include "train/report/environment.h"

namespace {

// In one write: ranks that are processes often fail together.
void print_error(const std::exception& error) { std::cerr << "plait: " + std::string(error.what()) + "\n"; }

}  // namespace

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
  app.set_version_flag("--version", [] { return plait::train::version_text(); });
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help for every subcommand");
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
  // CLI11 would only say that a subcommand is missing.
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const auto is_called = [argv](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), is_called)) {
    std::cerr << "plait: there is no command '" << argv[1] << "'; see plait --help\n";
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11's own codes are many; plait has one for wrong usage.
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const plait::launch::Interrupted& error) {
    if (*error.what()) print_error(error);
    plait::launch::end_by(error.signal());
  } catch (const plait::ConfigError& error) {
    print_error(error);
    return 2;
  } catch (const std::exception& error) {
    print_error(error);
    return 3;
  }
  return status;
}
