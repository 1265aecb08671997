// Prepares a study that Slurm's nodes measure: a folder with the study's configuration, the scripts of its jobs, and a script
// that submits them. A task of the array measures one round of every point in one allocation, so that efficiencies stay ratios
// within rounds, on one set of nodes; each keeps its results in its own folder (study_data.h), and nothing is merged.
//
//   config.yaml       the study's configuration, with study.slurm.ranks_per_node as a number
//   tasks/            empty: the place for measurements
//   points.sbatch     plait study points FOLDER: lists the points on a node, where machine and calibration are known
//   rounds.sbatch     plait study round FOLDER N: a job array
//   collect.sbatch    plait study collect FOLDER: the report
//   submit.sh         submits the three, each after the one before; its arguments are sbatch's
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/schema.h"

namespace plait::study {

// The resources that the jobs ask for. They follow from the configuration alone: the submitting host may have neither GPUs nor
// the data.
struct SlurmShape {
  bool on_gpus = true;  // unless the configuration says that it runs on CPUs
  int points = 0;       // the maximum in a round
  int most_ranks = 1;   // of a point
  int ranks_per_node = 1, nodes = 1;
  config::RoundRange rounds;
  int minutes = 1;         // for a round: the limit of study.budget
  bool simulates = false;  // collecting includes simulations, on the study's machine
};

// ConfigError if no point can run.
SlurmShape slurm_shape(const Config& study);

// Makes `folder`, private to the user, with all of the above. It must be empty or not exist. The jobs run `program` in
// `directory`, to which the relative paths of the configuration refer. Returns the paths that it wrote.
std::vector<std::filesystem::path> write_slurm_study(const std::filesystem::path& folder, const Config& study,
                                                     const std::filesystem::path& program,
                                                     const std::filesystem::path& directory);

// "3,5-7%2": for `sbatch --array`. If points may need fewer rounds than the maximum, only as many run at a time as every point
// needs, so that later rounds see which points are settled.
std::string array_of(const Config& study, const std::vector<int>& rounds);

}  // namespace plait::study
