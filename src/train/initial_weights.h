// Opens the weights that a new run takes from another run or from a model of transformers (train.init_from), and checks that
// they fit its model and its tokens.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "config/config.h"
#include "data/tokenizer.h"

namespace plait::train {

// The configuration that the checkpoint was written under, without its layout, whose schedule file may be gone; nullopt if it
// keeps none that this plait reads.
std::optional<Config> config_under(const checkpoint::CheckpointReader& reader);

// A note for a run that takes the moments of a run with other precision.moments; empty if these are equal.
std::string changed_moments(const Config& before, const Config& now);

// ConfigError with every key of the model that differs between the configuration of a resumed run and that of its checkpoint,
// and with the tokenizer, if it is not the run's.
void require_same_model(const Config& config, const checkpoint::CheckpointReader& reader, const std::filesystem::path& run_dir);

// The tokenizer of a configuration for weights that were trained with `theirs`, of the run or model in `run_dir`. ConfigError
// with the remedy if it is another one.
std::shared_ptr<const data::Tokenizer> same_tokenizer(const Config& config,
                                                      const std::shared_ptr<const data::Tokenizer>& theirs,
                                                      const std::filesystem::path& run_dir);

// The tokenizer kept by the run in `run_dir`; the configuration's for a copy of a checkpoint without its run, or for a model of
// transformers. ConfigError if the configuration names a different one.
std::shared_ptr<const data::Tokenizer> trained_tokenizer(const Config& config, const std::filesystem::path& run_dir);

struct InitialWeights {
  checkpoint::FoundCheckpoint checkpoint;            // or that model: interop::find_weights()
  std::shared_ptr<const data::Tokenizer> tokenizer;  // of the new run: the other run's, if both have one
  // {"checkpoint": absolute path, "step", "optimizer": whether moments and step count are taken, "digest":
  // WeightsReader::digest(), "lineage": [the same object, without lineage, for the checkpoint's run, then for that run's
  // origin, ...]}
  nlohmann::ordered_json record;
  std::vector<std::string> notes;  // allowed differences, for the user
};

// Finds and verifies the weights of config.train.init_from and compares them with the configuration. ConfigError with every
// difference: the model's shape, tied embeddings, vocabulary, tokenizer, number format; missing moments that are asked for; no
// steps left to train. A difference that changes the weights' result but not whether they fit (model.rope_base,
// model.norm_epsilon) is a note: it may be intended.
InitialWeights open_initial_weights(const Config& config);

}  // namespace plait::train
