// plait data: prepares training data, and shows how text is encoded.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <thread>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "config/config.h"
#include "config/schema.h"
#include "core/error.h"
#include "core/file.h"
#include "core/format.h"
#include "core/json.h"
#include "core/utf8.h"
#include "data/dataset.h"
#include "data/files.h"
#include "data/pack.h"
#include "interop/trained_model.h"
#include "interruptible_task.h"
#include "train/batch_file.h"
#include "usage.h"

namespace plait {
namespace {

constexpr int most_threads = 1024;

struct TokenizerArguments {
  std::string name = "bytes";
  std::int64_t vocab = 0;
  std::string model;
};

struct PackArguments {
  TokenizerArguments tokenizer;
  std::string config, chat_template = "none", place = "begin";
  bool json = false;
  data::PackOptions options;
  const CLI::Option* named = nullptr;  // --tokenizer
};

struct EncodeArguments {
  TokenizerArguments tokenizer;
  bool json_lines = false, add_special_tokens = false;
};

// `globs`: the text that a model would be trained on.
std::unique_ptr<data::Tokenizer> tokenizer_for(const TokenizerArguments& arguments, const std::vector<std::string>& globs) {
  const bool train_model = arguments.vocab > 0, load_model = !arguments.model.empty();
  if (arguments.name != "sentencepiece") {
    if (train_model || load_model)
      throw ConfigError({{"--tokenizer", arguments.name, "takes neither --vocab nor --model", "", 0}});
    return arguments.name == "bytes" ? data::make_byte_tokenizer() : data::load_huggingface(arguments.name);
  }
  if (train_model == load_model) {
    throw ConfigError({{"--tokenizer", "sentencepiece", "needs either --vocab (train a model) or --model (load one)", "", 0}});
  }
  if (load_model) return data::load_sentencepiece(arguments.model);
  std::vector<std::filesystem::path> texts;
  for (const data::MatchedFile& file : data::match_files(globs, "GLOB")) texts.push_back(file.path);
  return data::train_sentencepiece(texts, arguments.vocab, "--vocab");
}

CLI::Option* add_tokenizer_options(CLI::App& command, TokenizerArguments& arguments) {
  CLI::Option* named =
      command.add_option("--tokenizer", arguments.name, "bytes, sentencepiece, or the path of a Hugging Face tokenizer.json")
          ->capture_default_str();
  command.add_option("--model", arguments.model, "sentencepiece: use this model");
  return named;
}

void print(const PackArguments& arguments, const data::Tokenizer& tokenizer, const data::PackResult& result) {
  if (arguments.json) {
    nlohmann::ordered_json document = {{"tokenizer", tokenizer.kind()}, {"vocab", tokenizer.vocab()},
                                       {"files", result.files},         {"documents", result.documents},
                                       {"tokens", result.tokens},       {"shards", nlohmann::json::array()}};
    for (const auto& shard : result.shards) document["shards"].push_back(shard.string());
    std::cout << document.dump(2) << '\n';
    return;
  }
  const std::string out = arguments.options.out.string();
  const auto in_yaml = [&](const std::string& name) { return config::yaml_text(out + name); };
  const std::string how = tokenizer.kind() == "bytes" ? "bytes"
                          : tokenizer.kind() == "huggingface"
                              ? fmt::format("{{file: {}}}", in_yaml("/tokenizer.json"))
                              : fmt::format("{{sentencepiece: {{model: {}}}}}", in_yaml("/tokenizer.model"));
  std::cout << fmt::format(
      "{}, {}, {} of a vocabulary of {}, {} in {}\n"
      "train on them with  data: {{train: [{}], tokenizer: {}}}\n",
      plural(result.files, "file"), plural(result.documents, "document"), plural(result.tokens, "token"), tokenizer.vocab(),
      plural(result.shards.size(), "shard"), out, in_yaml("/*.bin"), how);
}

void print_tokens(const std::vector<std::int32_t>& tokens) { std::cout << fmt::format("[{}]\n", fmt::join(tokens, ",")); }

void encode(const EncodeArguments& arguments) {
  const auto tokenizer = tokenizer_for(arguments.tokenizer, {});
  const auto tokens_of = [&](const std::string& text) {
    std::vector<std::int32_t> tokens = tokenizer->encode(text);
    return arguments.add_special_tokens ? tokenizer->with_special_tokens(std::move(tokens)) : tokens;
  };
  if (!arguments.json_lines)
    return print_tokens(tokens_of({std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}));
  std::int64_t number = 0;
  for (std::string line, repaired; std::getline(std::cin, line);) {
    ++number;
    const auto refuse = [&](const std::string& = "") {
      throw ConfigError({{fmt::format("standard input, line {}", number), "",
                          "must be a JSON string (of Unicode text: half of a surrogate pair is none)", "", 0}});
    };
    const auto text = parse_json(repaired_utf8(line, repaired), refuse);
    if (!text.is_string()) refuse();
    print_tokens(tokens_of(text.get_ref<const std::string&>()));
  }
}

// The templates that need only a name.
std::vector<std::string> published_templates() {
  std::vector<std::string> published;
  for (const Name<ChatFormat>& format : names<ChatFormat>) {
    if (format.value != ChatFormat::custom) published.emplace_back(format.text);
  }
  return published;
}

// Also copies the settings of --config into the options.
std::unique_ptr<data::Tokenizer> take_tokenizer_and_documents(PackArguments& arguments) {
  DataConfig& data = arguments.options.data;
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (arguments.config.empty()) {
    data.chat_template = *named<ChatFormat>(arguments.chat_template);
    data.document_token.place = *named<DocumentTokenPlace>(arguments.place);
  } else {
    const Config config = load_config(arguments.config, {}, interop::read_model_directory);
    data = config.data;
    if (arguments.named->count() == 0 && data::has_text(data.tokenizer)) tokenizer = data::create_tokenizer(config);
    if (arguments.named->count() == 0 && !tokenizer)
      throw ConfigError(
          {{"--tokenizer", "",
            "must be given: " + arguments.config + " has data.tokenizer=" + data.tokenizer + ", which encodes no text", "",
            0}});
  }
  if (!tokenizer) tokenizer = tokenizer_for(arguments.tokenizer, arguments.options.globs);
  if (data.document_token.id >= 0 && tokenizer->kind() == "bytes")
    throw ConfigError(
        {{"--document-token", std::to_string(data.document_token.id), "needs a tokenizer other than bytes", "", 0}});
  return tokenizer;
}

data::PackResult pack_with_progress(data::PackOptions options, const data::Tokenizer& tokenizer) {
  InterruptibleTask task("packing");
  options.progress = task.callback();
  return data::pack(options, tokenizer);
}

void add_pack_command(CLI::App& data, int& status) {
  CLI::App* pack =
      data.add_subcommand("pack", "Turn text into token shards (llm.c format; uint32 where the vocabulary needs it)");
  const auto arguments = std::make_shared<PackArguments>();
  arguments->named = add_tokenizer_options(*pack, arguments->tokenizer);
  pack->add_option("--vocab", arguments->tokenizer.vocab, "sentencepiece: train a model of this many pieces on the text")
      ->check(whole_number(arguments->tokenizer.vocab, 1));
  pack->add_flag("--add-special-tokens", arguments->options.add_special_tokens,
                 "tokenizer.json: put around each document what its TemplateProcessing says");
  DataConfig& of_documents = arguments->options.data;
  CLI::Option* config =
      pack->add_option("--config", arguments->config,
                       "Take data.jsonl, chat_template, custom_template and document_token from this "
                       "configuration, in place of the next four options, and the tokenizer if no other is given");
  config->type_name("FILE");
  pack->add_option("--text-key", of_documents.jsonl.text_key,
                   "JSONL: the field that holds a document's text (data.jsonl.text_key)")
      ->capture_default_str()
      ->excludes(config);
  pack->add_option("--chat-template", arguments->chat_template,
                   "JSONL with chats: how they are written out (data.chat_template)")
      ->check(CLI::IsMember(published_templates()))
      ->capture_default_str()
      ->excludes(config);
  pack->add_option("--document-token", of_documents.document_token.id,
                   "Token to put between documents of text (data.document_token.id)")
      ->check(whole_number(of_documents.document_token.id, 0))
      ->excludes(config);
  pack->add_option("--document-token-place", arguments->place, "begin or end of each document (data.document_token.place)")
      ->check(CLI::IsMember({"begin", "end"}))
      ->capture_default_str()
      ->excludes(config);
  pack->add_option("--out", arguments->options.out, "Directory of the shards and the tokenizer; must hold no shards yet")
      ->required();
  pack->add_option("--shard-tokens", arguments->options.shard_tokens, "Tokens in a shard")
      ->check(whole_number(arguments->options.shard_tokens, 1))
      ->capture_default_str();
  arguments->options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  pack->add_option("--threads", arguments->options.threads, "Threads that encode; the shards do not depend on it")
      ->check(whole_number_in(1, most_threads))
      ->default_str("one for each processor");
  pack->add_flag("--json", arguments->json, "Print one JSON document");
  pack->add_option(
          "GLOB", arguments->options.globs,
          "Text files, or JSONL (*.jsonl), also compressed (*.zst); * and ? within a folder, ** any depth (quote them)")
      ->required();
  pack->callback([arguments, &status] {
    const auto tokenizer = take_tokenizer_and_documents(*arguments);
    print(*arguments, *tokenizer, pack_with_progress(arguments->options, *tokenizer));
    status = 0;
  });
}

void add_encode_command(CLI::App& data, int& status) {
  CLI::App* command = data.add_subcommand("encode", "Print the tokens of the text on standard input as a JSON array");
  const auto arguments = std::make_shared<EncodeArguments>();
  add_tokenizer_options(*command, arguments->tokenizer);
  command->add_flag("--json-lines", arguments->json_lines, "Each line is a JSON string, and gets a line with its tokens");
  command->add_flag("--add-special-tokens", arguments->add_special_tokens,
                    "tokenizer.json: put around a text what its TemplateProcessing says");
  command->callback([arguments, &status] {
    encode(*arguments);
    status = 0;
  });
}

struct BatchesArguments {
  std::string config, out;
  std::vector<std::string> set;
  std::int64_t steps = 0;
};

// The batches are the same in every layout.
void write_batches(const BatchesArguments& a) {
  const Config config = load_config(a.config, a.set, interop::read_model_directory);
  const std::unique_ptr<data::Tokenizer> tokenizer = data::create_tokenizer(config);
  const auto dataset = data::open_dataset(config, *tokenizer, std::max(config.model.vocab.value_or(0), tokenizer->vocab()));
  InterruptibleTask task("writing");
  train::write_batches(a.out, *dataset, config, a.steps, task.callback());
}

void add_batches_command(CLI::App& data, int& status) {
  auto arguments = std::make_shared<BatchesArguments>();
  CLI::App* command =
      data.add_subcommand("batches", "Write the tokens of a run's first steps, to give them to another program");
  command->add_option("CONFIG", arguments->config, "Configuration (YAML)")->required();
  command->add_option("--steps", arguments->steps, "How many")->required()->check(whole_number_in(1, std::uint64_t{1} << 32));
  command
      ->add_option(
          "--out", arguments->out,
          "safetensors to make: `tokens` and `targets` (-1: masked, or the next document's), and where documents are separate "
          "`starts` (the position of the first token of the document that a token is of); int32 [step, sequence of the "
          "global batch, position]")
      ->required()
      ->type_name("FILE");
  command->add_option("--set", arguments->set, "Override a configuration value (repeatable)")->type_name("PATH=VALUE");
  command->callback([arguments, &status] {
    write_batches(*arguments);
    status = 0;
  });
}

}  // namespace

void add_data_command(CLI::App& app, int& status) {
  CLI::App* data = app.add_subcommand("data", "Prepare training data");
  data->require_subcommand(1);
  add_pack_command(*data, status);
  add_encode_command(*data, status);
  add_batches_command(*data, status);
}

}  // namespace plait
