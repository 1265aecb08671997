// Reports a run's use of its training data, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

namespace plait::train {

// A line for each source, without a newline at the end: its share of the tokens, and the number of epochs so far. Empty if
// there are no sources (random tokens).
std::string source_report(const std::vector<data::SourceUse>& uses, std::int64_t sequence_length);

// For the start of a run: "data: 1.23M tokens to train on, 137k to validate; steps 1 to 500 take 4.10M, so this run makes 3.33
// epochs; bits per byte are 0.39 x the loss (3.70 bytes a token)". The last part only if the tokenizer has text; its ratio
// comes from the first windows. `start`: where `dataset` was opened.
std::string data_summary(const data::Dataset& dataset, const data::Tokenizer& tokenizer, const TrainConfig& train,
                         const data::SamplePosition& start);

}  // namespace plait::train
