// The losses of training runs, as scaling laws are fitted to: from the run directories below a folder.
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

// Every directory up to three levels below `folder` that holds a config.yaml and a metrics.jsonl is a run: as deep as those of
// a study are below its folder. Nothing in a run is looked at for others, and no link is followed. Its N is as
// study/isoflop_grid.h counts it, its D the tokens of its steps (those before a fork too, where it took the optimizer's state),
// its loss the validation loss of its last step. Left out, with the reason: runs that have not come to their last step or have
// no validation loss there; trunks, from which other runs in the folder go on, as their learning rate has not fallen; runs that
// began with the weights of another and without its step count, since what they were trained on is not known from their steps.
//
// ConfigError if there is no run, if the runs were evaluated on different tokens (another split, tokenizer, sequence length,
// number of sequences or way from documents to tokens), naming two that differ and the key, or if a file cannot be read.
RunLosses read_run_losses(const std::filesystem::path& folder);

}  // namespace plait::study
