// What `plait study` can do: one function per subcommand of it. Each registers itself with `study`.
#pragma once

#include <CLI/CLI.hpp>

namespace plait {

void add_study_report_command(CLI::App& study, int& status);
void add_study_compare_command(CLI::App& study, int& status);
void add_study_fit_command(CLI::App& study, int& status);

}  // namespace plait
