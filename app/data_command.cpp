// plait data: prepares training data.
#include <iostream>
#include <memory>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/error.h"
#include "data/files.h"
#include "data/pack.h"

namespace plait {
namespace {

struct PackArguments {
  std::string tokenizer = "bytes";
  std::int64_t vocab = 0;
  std::string model;
  bool json = false;
  data::PackOptions options;
};

std::unique_ptr<data::Tokenizer> tokenizer_for(const PackArguments& arguments) {
  const bool train_model = arguments.vocab > 0, load_model = !arguments.model.empty();
  if (arguments.tokenizer == "bytes") {
    if (train_model || load_model) throw ConfigError({{"--tokenizer", "bytes", "takes neither --vocab nor --model", "", 0}});
    return data::make_byte_tokenizer();
  }
  if (train_model == load_model) {
    throw ConfigError({{"--tokenizer", "sentencepiece", "needs either --vocab (train a model) or --model (load one)", "", 0}});
  }
  if (load_model) return data::load_sentencepiece(arguments.model);
  std::vector<std::filesystem::path> texts;
  for (const data::MatchedFile& file : data::match_files(arguments.options.globs, "GLOB")) texts.push_back(file.path);
  return data::train_sentencepiece(texts, arguments.vocab);
}

void print(const PackArguments& arguments, const data::Tokenizer& tokenizer, const data::PackResult& result) {
  if (arguments.json) {
    nlohmann::ordered_json document = {{"tokenizer", tokenizer.kind()},
                                       {"vocab", tokenizer.vocab()},
                                       {"files", result.files},
                                       {"tokens", result.tokens},
                                       {"shards", nlohmann::json::array()}};
    for (const auto& shard : result.shards) document["shards"].push_back(shard.string());
    std::cout << document.dump(2) << '\n';
    return;
  }
  const std::string out = arguments.options.out.string();
  const std::string how =
      tokenizer.kind() == "bytes" ? "bytes" : fmt::format("{{sentencepiece: {{model: {}/tokenizer.model}}}}", out);
  std::cout << fmt::format(
      "{} files, {} tokens of a vocabulary of {}, {} shards in {}\n"
      "train on them with  data: {{train: [\"{}/*.bin\"], tokenizer: {}}}\n",
      result.files, result.tokens, tokenizer.vocab(), result.shards.size(), out, out, how);
}

}  // namespace

void add_data_command(CLI::App& app, int& status) {
  CLI::App* data = app.add_subcommand("data", "Prepare training data");
  data->require_subcommand(1);
  CLI::App* pack =
      data->add_subcommand("pack", "Turn text into token shards (llm.c format; uint32 where the vocabulary needs it)");
  const auto arguments = std::make_shared<PackArguments>();
  pack->add_option("--tokenizer", arguments->tokenizer, "bytes or sentencepiece")
      ->check(CLI::IsMember({"bytes", "sentencepiece"}))
      ->capture_default_str();
  pack->add_option("--vocab", arguments->vocab, "sentencepiece: train a model of this many pieces on the text")
      ->check(CLI::PositiveNumber);
  pack->add_option("--model", arguments->model, "sentencepiece: use this model");
  pack->add_option("--out", arguments->options.out, "Directory of the shards and the tokenizer; must hold no shards yet")
      ->required();
  pack->add_option("--shard-tokens", arguments->options.shard_tokens, "Tokens in a shard")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  pack->add_flag("--json", arguments->json, "Print one JSON document");
  pack->add_option("GLOB", arguments->options.globs, "Text files; * and ? within a folder, ** any depth (quote them)")
      ->required();
  pack->callback([arguments, &status] {
    const auto tokenizer = tokenizer_for(*arguments);
    print(*arguments, *tokenizer, data::pack(arguments->options, *tokenizer));
    status = 0;
  });
}

}  // namespace plait
