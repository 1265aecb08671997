#include "interop/trained_model.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "checkpoint/run_directory.h"
#include "config/schema.h"
#include "core/error.h"
#include "core/file.h"
#include "interop/foreign_weights.h"
#include "interop/model_family.h"

namespace plait::interop {
namespace {

namespace fs = std::filesystem;

// The error's reason on one line.
std::string reason(const ConfigError& error) {
  if (error.problems().empty()) return error.what();
  const ConfigProblem& problem = error.problems().front();
  return fmt::format("{}{}{}: {}", problem.path, problem.value.empty() ? "" : "=", problem.value, problem.rule);
}

// The reason why the tokenizer in `file`, which `load` makes, cannot be used; "" if it can, or does not exist.
template <typename Load>
std::string why_not(const fs::path& file, std::int64_t vocab, const Load& load) {
  try {
    refuse_dangling_link(file);
    const std::int64_t tokens = load(file)->vocab();
    if (tokens <= vocab) return "";
    return fmt::format("{}: has {} tokens, more than the vocabulary of the model, {}", file.string(), tokens, vocab);
  } catch (const ConfigError& error) {
    return reason(error);
  }
}

// Fills keys.tokenizer and related members, and notes what was not taken over and why.
void find_tokenizer(const fs::path& model, FoundModel& found) {
  ModelDirectory& keys = found.keys;
  const fs::path file = model / "tokenizer.json", pieces = model / "tokenizer.model";
  const auto is_there = [](const fs::path& path) { return fs::exists(fs::symlink_status(path)); };
  std::string why;
  if (is_there(file)) {
    why = why_not(file, keys.model.vocab, data::load_huggingface);
    if (why.empty()) {
      keys.tokenizer = "huggingface", keys.huggingface.file = file.string();
      return;
    }
  }
  if (is_there(pieces)) {
    const std::string why_no_pieces = why_not(pieces, keys.model.vocab, [&](const fs::path& path) {
      // Text with added tokens would be encoded differently from the model's training.
      if (!is_there(file)) return data::load_sentencepiece(path);
      refuse_dangling_link(file);
      return data::load_sentencepiece(path, data::added_tokens_of(file));
    });
    if (why_no_pieces.empty()) {
      keys.tokenizer = "sentencepiece", keys.sentencepiece.model = pieces.string();
      found.other_tokenizer = why;
      return;
    }
    if (why_no_pieces == why) {
      why += ", so that nothing says which tokens it adds to those of tokenizer.model";
    } else {
      why += (why.empty() ? "" : "; ") + why_no_pieces;
    }
  }
  keys.tokenizer = "tokens";
  found.no_tokenizer = why.empty() ? "there is none that plait knows" : why;
  keys.no_tokenizer = fmt::format("the tokenizer of {} was not taken over: {}", model.string(), found.no_tokenizer);
}

}  // namespace

std::vector<std::string> FoundModel::notes() const {
  std::vector<std::string> notes;
  if (!no_tokenizer.empty())
    notes.push_back("no tokenizer was taken over, so data is token shards (data.tokenizer: tokens): " + no_tokenizer);
  if (!other_tokenizer.empty())
    notes.push_back("the tokenizer is that of tokenizer.model, as tokenizer.json was not taken over: " + other_tokenizer);
  if (has_dropout) notes.push_back("its dropout is left out: plait computes none");
  return notes;
}

FoundModel find_model(const fs::path& directory) {
  ForeignModel foreign = read_model(directory);
  FoundModel found;
  found.keys.file = (directory / "config.json").string();
  found.keys.model = std::move(foreign.model);
  found.positions = foreign.positions;
  found.has_dropout = foreign.has_dropout;
  find_tokenizer(directory, found);
  return found;
}

ModelDirectory read_model_directory(const std::string& directory) { return find_model(directory).keys; }

Config config_of_model(const FoundModel& model, const std::string& name, const std::vector<std::string>& overrides) {
  // Long windows need memory, so a larger one must be asked for (data.sequence_length).
  const std::int64_t sequence = std::min<std::int64_t>(model.positions, 1024);
  const std::string text = fmt::format(
      "run: {{name: {}}}\n"
      "model: {{from: it}}\n"
      "data: {{train: [YOUR_TEXT], sequence_length: {}}}\n"
      "train: {{steps: 1, global_batch: 1, micro_batch: 1, init_from: {{path: \"\"}}}}\n",
      config::yaml_text(name), sequence);
  return parse_config(text, overrides, model.keys.file, [&](const std::string&) { return model.keys; });
}

Config trained_config(const fs::path& weights, const std::vector<std::string>& overrides) {
  if (!is_model_directory(weights)) return checkpoint::load_config_of(weights, overrides);
  return config_of_model(find_model(weights), fs::canonical(weights).filename().string(), overrides);
}

}  // namespace plait::interop
