// Reads the losses of training runs, for fitting scaling laws, from the run directories below a folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/scaling_law.h"

namespace plait::study {

struct RunLosses {
  struct Run {
    std::filesystem::path directory;
    LossPoint point;
  };
  struct LeftOut {
    std::filesystem::path directory;
    std::string reason;
  };
  std::vector<Run> runs;          // by path
  std::vector<LeftOut> left_out;  // likewise
  std::vector<LossPoint> points() const;
};

// Every directory up to three levels below `folder` that holds a config.yaml and a metrics.jsonl is a run: a study's runs are
// that deep below its folder. Runs inside a run do not count, and no link is followed. Its N is defined in
// study/isoflop_grid.h, its D is the tokens of its steps (including those before a fork, if it took the optimizer's state), its
// loss is the validation loss of its last step. Left out, with the reason: runs that have not reached their last step or have
// no validation loss there; trunks, from which other runs in the folder continue, since their learning rate has not fallen;
// runs that began with the weights of another and without its step count, since their steps do not tell all that they were
// trained on.
//
// ConfigError if there is no run, if the runs were evaluated on different tokens (another split, tokenizer, sequence length,
// number of sequences or way from documents to tokens), naming two that differ and the key, or if a file cannot be read.
RunLosses read_run_losses(const std::filesystem::path& folder);

}  // namespace plait::study
