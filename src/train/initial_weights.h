// The weights that a new run takes from another, or from a model of transformers (train.init_from): whether they are weights of
// its model and its tokens.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_reader.h"
#include "core/config.h"
#include "data/tokenizer.h"

namespace plait::train {

// The configuration that the checkpoint was written under, without its layout, whose schedule's file may be gone; nothing if it
// keeps none that this plait reads.
std::optional<Config> config_under(const checkpoint::CheckpointReader& reader);

// What to tell the user of a run that takes moments of a run with other precision.moments; empty where these are the same.
std::string changed_moments(const Config& before, const Config& now);

// ConfigError with every key of the model in which the configuration of a run that goes on differs from the one that its
// checkpoint was written under, and with the tokenizer, if that is not the run's.
void require_same_model(const Config& config, const checkpoint::CheckpointReader& reader, const std::filesystem::path& run_dir);

// The tokenizer of a configuration for weights that were trained with `theirs`, of the run or model in `run_dir`. ConfigError
// with the remedy where it is another one.
std::shared_ptr<const data::Tokenizer> same_tokenizer(const Config& config,
                                                      const std::shared_ptr<const data::Tokenizer>& theirs,
                                                      const std::filesystem::path& run_dir);

struct InitialWeights {
  checkpoint::FoundCheckpoint checkpoint;            // or that model: checkpoint::find_weights()
  std::shared_ptr<const data::Tokenizer> tokenizer;  // of the new run: the other run's, wherever both have one
  // {"checkpoint": absolute path, "step", "optimizer": whether moments and step count are taken, "digest":
  // WeightsReader::digest(), "lineage": [the same, without lineage, of the run that the checkpoint is of, then of that one's
  // origin, ...]}
  nlohmann::ordered_json record;
  std::vector<std::string> notes;  // differences that are allowed, for the user to see
};

// Finds and verifies what config.train.init_from names and compares it with the configuration. ConfigError with every
// difference: the model's shape, tied embeddings, vocabulary, tokenizer, number format; no moments where they are asked for;
// nothing left to train. A difference that changes what the weights compute but not whether they fit (model.rope_base,
// model.norm_epsilon) is a note: it may be wanted.
InitialWeights open_initial_weights(const Config& config);

}  // namespace plait::train
