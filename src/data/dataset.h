// A dataset hands out training and validation samples.
//
// The files of a split are concatenated in order; a sample is a window of sequence_length + 1 consecutive tokens of that
// concatenation (it may cross from one file into the next). Training goes through all windows in epochs without replacement
// (data/sample_order.h); with multiple sources (data.sources), each has its own windows and its share of the samples
// (data/sample_order.h). The samples of a run are numbered from 0 on: step after step, and within a step by their index in the
// global batch. A sample's window depends only on the seed and that number, so every layout, rank and restart sees the same
// samples.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "data/tokenizer.h"

namespace plait::data {

// The number of samples that the steps up to `step` have used: step `step` + 1 begins with sample number `samples`. Kept in
// checkpoints, so that a run may continue with another global batch and still neither misses nor repeats a sample.
struct SamplePosition {
  std::int64_t step = 0, samples = 0;
};

// Everything that decides the order of samples, by name: data sets with equal entries hand out the same windows of the same
// files. Kept in checkpoints.
using SampleOrder = std::vector<std::pair<std::string, std::string>>;

// A run's use of one source of its training samples.
struct SourceUse {
  std::string globs;         // its files, as configured
  std::int64_t tokens = 0;   // in its training split
  std::int64_t windows = 0;  // per epoch
  std::int64_t samples = 0;  // used, over all epochs
  double epochs() const { return static_cast<double>(samples) / static_cast<double>(windows); }
};

// Destination of a sample, sequence_length elements each. starts[i] is the index within the sequence at which token i's
// document begins (0 for one that began before the sequence); empty if not wanted.
inline constexpr std::int32_t no_target = -1;  // the prediction of the next token is not learned

struct SampleSpans {
  std::span<std::int32_t> tokens, targets, starts = {};
};

// Immutable and thread-safe: ranks that are threads share one.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t train_tokens() const = 0;       // 0 for random tokens, which have no end
  virtual std::int64_t validation_tokens() const = 0;  // 0: there is no validation split

  virtual SampleOrder sample_order() const = 0;
  // For each source, in the order of the configuration, the use that the first `samples` samples of a run make of it. Empty for
  // random tokens.
  virtual std::vector<SourceUse> sources_used(std::int64_t samples) const = 0;

  std::int64_t sequence_length() const { return sequence_length_; }

  // Sample `sample` (its index in the global batch) of step `step`, which is after the position that the dataset was opened at.
  // Targets are the tokens shifted by one, but `no_target` where the token is masked (in a chat, everything but the assistant's
  // content) and where it begins a document, if documents are separate. ConfigError if a shard holds a token outside the
  // vocabulary.
  virtual void train_sample(std::int64_t step, std::int64_t sample, const SampleSpans& out) const = 0;

  // Sample `index` of `count` that are spread evenly over the validation split, the same at every evaluation. If the split is
  // the ends of multiple sources, each has its share of them.
  virtual void validation_sample(std::int64_t index, std::int64_t count, const SampleSpans& out) const = 0;

 protected:
  explicit Dataset(std::int64_t sequence_length) : sequence_length_(sequence_length) {}

 private:
  std::int64_t sequence_length_;
};

// The validation split by itself, as one sequence of tokens. Immutable and thread-safe.
class ValidationTokens {
 public:
  virtual ~ValidationTokens() = default;
  virtual std::int64_t tokens() const = 0;
  // A sample of any length whose first token is `first`.
  virtual void read(std::int64_t first, const SampleSpans& out) const = 0;
};

// The files of config.data.validation, or the part of the training files that validation_fraction keeps, source by source.
// ConfigError without a validation split, or with fewer than two tokens in it: a loss needs a token and the one before it.
std::unique_ptr<ValidationTokens> open_validation(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab);

// For the start of a run: a line if files of data.validation are also trained on, under any name; else empty. That may be
// intended, so it is no error. ConfigError as for open_dataset().
std::string trained_validation_warning(const DataConfig& data);

// Opens (and for text: encodes) the files of config.data. With a text tokenizer, a file named *.bin that begins with a shard's
// magic number, or has a Megatron-LM index next to it, is a shard made with that tokenizer (`plait data pack`); other files are
// text. `vocab` is the model's: tokens must be below it. Steps take train.global_batch samples each, from `position` on.
// ConfigError with all files that cannot be used.
std::shared_ptr<const Dataset> open_dataset(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab,
                                            SamplePosition position = {});

}  // namespace plait::data
