#include "train/trained_model.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "checkpoint/huggingface/foreign_weights.h"
#include "checkpoint/huggingface/model_family.h"
#include "checkpoint/run_directory.h"
#include "core/config_schema.h"
#include "core/error.h"

namespace plait::train {
namespace {

namespace fs = std::filesystem;
namespace hf = checkpoint::huggingface;

// Fills keys.tokenizer and what goes with it; else says why not.
std::string find_tokenizer(const fs::path& model, ModelDirectory& keys) {
  const auto fits = [&](const data::Tokenizer& tokenizer) { return tokenizer.vocab() <= keys.model.vocab; };
  const fs::path file = model / "tokenizer.json", pieces = model / "tokenizer.model";
  std::string why = "there is none that plait knows";
  if (fs::exists(file)) {
    try {
      if (fits(*data::load_huggingface(file))) {
        keys.tokenizer = "huggingface", keys.huggingface.file = file.string();
        return "";
      }
      why = "its tokenizer has more tokens than its vocabulary";
    } catch (const ConfigError& error) {
      why = error.what();
    }
  }
  if (fs::exists(pieces)) {
    try {
      if (fits(*data::load_sentencepiece(pieces))) {
        keys.tokenizer = "sentencepiece", keys.sentencepiece.model = pieces.string();
        return "";
      }
    } catch (const ConfigError& error) {
      why = error.what();
    }
  }
  keys.tokenizer = "tokens";
  return why;
}

}  // namespace

std::vector<std::string> FoundModel::notes() const {
  std::vector<std::string> notes;
  if (!no_tokenizer.empty())
    notes.push_back("no tokenizer was taken over, so data is token shards (data.tokenizer: tokens): " + no_tokenizer);
  if (has_dropout) notes.push_back("its dropout is left out: plait computes none");
  return notes;
}

FoundModel find_model(const fs::path& directory) {
  hf::ForeignModel foreign = hf::read_model(directory);
  FoundModel found;
  found.keys.file = (directory / "config.json").string();
  found.keys.model = std::move(foreign.model);
  found.positions = foreign.positions;
  found.has_dropout = foreign.has_dropout;
  found.no_tokenizer = find_tokenizer(directory, found.keys);
  return found;
}

ModelDirectory read_model_directory(const std::string& directory) { return find_model(directory).keys; }

Config config_of_model(const FoundModel& model, const std::string& name, const std::vector<std::string>& overrides) {
  // Long windows take memory: what is more is asked for (data.sequence_length).
  const std::int64_t sequence = std::min<std::int64_t>(model.positions, 1024);
  const std::string text = fmt::format(
      "run: {{name: {}}}\n"
      "model: {{from: it}}\n"
      "data: {{train: [YOUR_TEXT], sequence_length: {}}}\n"
      "train: {{steps: 1, global_batch: 1, micro_batch: 1, init_from: {{path: \"\"}}}}\n",
      config::yaml_text(name, {}), sequence);
  return parse_config(text, overrides, model.keys.file, [&](const std::string&) { return model.keys; });
}

Config trained_config(const fs::path& weights, const std::vector<std::string>& overrides) {
  if (!hf::is_model_directory(weights)) return checkpoint::load_config_of(weights, overrides);
  return config_of_model(find_model(weights), fs::canonical(weights).filename().string(), overrides);
}

std::unique_ptr<data::Tokenizer> trained_tokenizer(const Config& config, const fs::path& run_dir) {
  if (!hf::is_model_directory(run_dir) && data::has_tokenizer(run_dir)) return data::load_tokenizer(run_dir);
  const DataConfig& data = config.data;
  if (data.tokenizer == "sentencepiece" && data.sentencepiece.model.empty()) {
    throw ConfigError(
        {{run_dir.string(), "",
          "is a copy without its run, which keeps the tokenizer that it trained: give the run, or name a copy of its "
          "tokenizer.model (--set 'data.sentencepiece={model: FILE}')",
          "", 0}});
  }
  return data::create_tokenizer(config);
}

}  // namespace plait::train
