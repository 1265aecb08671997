// A study that Slurm's nodes measure: a folder with the study's configuration, the scripts of its jobs, and a script that
// submits them. A task of the array measures one round of every point in one allocation, so that efficiencies stay ratios
// within rounds, on one set of nodes; each keeps its results in a folder of its own (study_data.h), and nothing is merged.
//
//   config.yaml       the study's configuration, with study.slurm.ranks_per_node as a number
//   tasks/            empty: what is measured comes here
//   points.sbatch     plait study points FOLDER: lists the points on a node, where machine and calibration are known
//   rounds.sbatch     plait study round FOLDER N: a job array
//   collect.sbatch    plait study collect FOLDER: the report
//   submit.sh         submits the three, each after the one before; its arguments are sbatch's
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/config_schema.h"

namespace plait::study {

// What the jobs ask for. It follows from the configuration alone: the host that submits may have neither GPUs nor the data.
struct SlurmShape {
  bool on_gpus = true;  // unless the configuration says that it runs on CPUs
  int points = 0;       // that a round may have to measure
  int most_ranks = 1;   // of a point
  int ranks_per_node = 1, nodes = 1;
  config::RoundRange rounds;
  int minutes = 1;         // of a round: what study.budget allows
  bool simulates = false;  // what is collected, on the machine of the study
};

// ConfigError where no point could run.
SlurmShape slurm_shape(const Config& study);

// Makes `folder`, private to the user, with all of the above. It must be empty or not exist. The jobs run `program` in
// `directory`, to which the relative paths of the configuration are. Returns the paths that it wrote.
std::vector<std::filesystem::path> write_slurm_study(const std::filesystem::path& folder, const Config& study,
                                                     const std::filesystem::path& program,
                                                     const std::filesystem::path& directory);

// "3,5-7%2": of `sbatch --array`. Where points may need fewer rounds than the most, no more run at a time than every point
// needs, so that later ones see what those have settled.
std::string array_of(const Config& study, const std::vector<int>& rounds);

}  // namespace plait::study
