// The subcommands of `plait study`, one function each, and the functions they share. Each registers itself with `study`.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "study/study_folder.h"

namespace plait {

void add_study_report_command(CLI::App& study, int& status);
void add_study_compare_command(CLI::App& study, int& status);
void add_study_fit_command(CLI::App& study, int& status);
// points, round and collect: the steps of a study under Slurm. `program`: argv[0].
void add_study_slurm_commands(CLI::App& study, int& status, const std::string& program);

// All points, with a status line while the planner works; `ranks_per_node` as in list_points().
std::vector<study::Point> listed_points(const Config& config, const train::Environment& environment, int ranks_per_node);
nlohmann::ordered_json topology_here(const Config& config);

struct MeasuringOptions {
  std::string program, only;  // argv[0]; an expression, or ""
  std::optional<int> round;   // only this one
};
// Measures the rest of `folder`, with a line for each round of a point. Returns the reason why it stopped; after an
// interruption it has said how to continue. ConfigError on another machine, or with another plait, than the study's.
study::StopReason measure(study::StudyFolder& folder, const MeasuringOptions& options);

// Simulates if the study says so, writes the report, prints the tables, or with `json` one document. The exit status: 1 if
// study.bounds are exceeded.
int finish_study(study::StudyData& data, bool json);

// Writes the folder of a study for Slurm and prints the next command.
void prepare_for_slurm(const Config& config, const std::filesystem::path& folder);

}  // namespace plait
