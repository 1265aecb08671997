// The subcommands, one function each. Each registers itself; `status` becomes the program's exit status when it ran: 0 success,
// 1 a requested check failed, 2 usage or configuration, 3 runtime failure.
#pragma once

#include <CLI/CLI.hpp>

namespace plait {

// argc and argv: for starting rank processes.
void add_train_command(CLI::App& app, int& status, int argc, char** argv);
void add_bench_command(CLI::App& app, int& status, int argc, char** argv);
void add_verify_command(CLI::App& app, int& status, int argc, char** argv);
void add_eval_command(CLI::App& app, int& status, int argc, char** argv);
void add_import_commands(CLI::App& app, int& status);  // import, export
void add_sample_command(CLI::App& app, int& status);
void add_study_command(CLI::App& app, int& status, int argc, char** argv);
void add_data_command(CLI::App& app, int& status);
void add_plan_command(CLI::App& app, int& status);
void add_topo_command(CLI::App& app, int& status);

}  // namespace plait
