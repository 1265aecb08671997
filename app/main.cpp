// The plait program.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "commands.h"
#include "core/error.h"

int main(int argc, char** argv) {
  CLI::App app{"plait: trains transformers with data, tensor and pipeline parallelism, braided freely"};
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help for every subcommand");
  int status = 0;
  plait::add_train_command(app, status, argc, argv);
  plait::add_bench_command(app, status, argc, argv);
  plait::add_sample_command(app, status);
  plait::add_data_command(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11's own codes are many; plait has one for wrong usage.
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const plait::ConfigError& error) {
    std::cerr << "plait: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "plait: " << error.what() << '\n';
    return 3;
  }
  return status;
}
