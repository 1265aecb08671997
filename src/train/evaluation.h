// Evaluates a trained model: its loss over a whole data set, and its logits for given tokens. It works in any layout; the
// layouts agree up to rounding.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/rendezvous.h"
#include "config/config.h"
#include "core/task_progress.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "launch/settled_job.h"

namespace plait::train {

// Cuts a sequence of tokens so that every token but the first is predicted once. Window w holds the tokens from w * length on
// and predicts the token after each; the last window may be shorter.
class Windows {
 public:
  Windows(std::int64_t tokens, std::int64_t length) : tokens_(tokens), length_(length) {}
  std::int64_t count() const { return (tokens_ - 1 + length_ - 1) / length_; }
  std::int64_t first(std::int64_t window) const { return window * length_; }
  // Number of tokens that the window predicts; 0 for windows after the last.
  std::int64_t predicted(std::int64_t window) const;

 private:
  std::int64_t tokens_, length_;
};

// The bytes of text in the targets that count: each run of targets adds what its text adds to that of the token before it.
// targets[i] follows tokens[i], or is -1 and does not count. `special`: the tokenizer's special_tokens(), which are no text.
// nullopt if a counted target is Tokenizer::unknown().
std::optional<std::int64_t> counted_bytes(const data::Tokenizer& tokenizer, const data::TokenSet& special,
                                          std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets);

struct EvaluationRequest {
  // The layout, train.micro_batch (train.global_batch is one of these per data-parallel rank), data.sequence_length and the
  // data. For logits, data.sequence_length is the tokens' length.
  launch::SettledJob job;
  std::filesystem::path checkpoint, run_dir;  // see trained_tokenizer()
  std::filesystem::path tokens, logits;       // instead of a data set, if given
  std::vector<std::string> argv;              // of this process, for ranks that are processes
  std::shared_ptr<comm::Rendezvous> joined;
  std::function<void(const std::string&)> note = [](const std::string&) {};  // for the user; on rank 0
  ProgressCallback progress = no_progress;                                   // on rank 0, from the first window on
};

// Each window begins without context, so longer ones have lower loss. `bytes`: of the text of these tokens; nullopt without a
// tokenizer (token shards).
struct DataSetLoss {
  std::int64_t step = 0;     // of the checkpoint
  std::int64_t windows = 0;  // of the data set
  std::int64_t tokens = 0;   // predicted ones that count
  double loss = 0;           // nats per token
  std::optional<std::int64_t> bytes;
  double perplexity() const;
  std::optional<double> bits_per_byte() const;
};

// {"step", "windows", "tokens", "loss", "perplexity", "bytes", "bits_per_byte"}; the last two are null if unknown.
void to_json(nlohmann::ordered_json& json, const DataSetLoss& loss);

// Sequence length of the `tokens` in a safetensors file, int32 [batch, sequence]. ConfigError naming the file if it holds
// anything else.
std::int64_t sequence_length_of(const std::filesystem::path& tokens);

// Runs the job. The data set's loss goes to `on_result` on rank 0 (Error if no token counts); the logits, float32 [batch,
// sequence, vocabulary] named `logits`, go to their file: every rank with the head writes its part, and the file appears when
// it is complete. Returns the exit status. ConfigError before anything is launched if the checkpoint, the tokenizer or the
// files cannot be used.
int evaluate(const EvaluationRequest& request, const std::function<void(const DataSetLoss&)>& on_result);

}  // namespace plait::train
