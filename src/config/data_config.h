// The section `data` of a configuration (config/config.h says how its keys are declared).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/auto.h"
#include "core/choices.h"
#include "core/limits.h"

namespace plait {

struct SentencePieceConfig {
  Auto<std::int64_t> vocab;  // given: train a model of this size on data.train
  std::string model;         // else: path of an existing .model file

  template <typename Keys>
  static void declare(Keys& k) {
    k.auto_key("vocab", &SentencePieceConfig::vocab, k.whole(8, limits::pieces),
               "Train a unigram model of this many pieces on the training text and keep it in the run directory. `auto`: use "
               "`model`.");
    k.key("model", &SentencePieceConfig::model, k.any("a path, or empty"), "An existing SentencePiece `.model` file.");
  }
};

struct HuggingFaceConfig {
  std::string file;  // path of a tokenizer.json

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("file", &HuggingFaceConfig::file, k.any("a path, or empty"),
          "A `tokenizer.json` of Hugging Face's `tokenizers`: byte-level BPE, as GPT-2, Llama 3 and Qwen have it. The ids are "
          "those "
          "of `tokenizers` without special tokens. Broken UTF-8 is read as U+FFFD.");
  }
};

struct JsonlConfig {
  std::string text_key = "text";

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("text_key", &JsonlConfig::text_key, k.not_empty(), "The field of a line that holds the document's text.");
  }
};

// A user-defined chat template. The members are the texts around the content of a message.
struct CustomTemplateConfig {
  std::string begin;
  std::string system_prefix, system_suffix, default_system;
  std::string user_prefix, user_suffix;
  std::string assistant_prefix, assistant_end, assistant_suffix;
  std::vector<std::string> special_tokens;
  bool trim = false;
  friend bool operator==(const CustomTemplateConfig&, const CustomTemplateConfig&) = default;

  template <typename Keys>
  static void declare(Keys& k) {
    using C = CustomTemplateConfig;
    k.key("begin", &C::begin, k.any("a text"), "Before the first message.");
    k.key("system_prefix", &C::system_prefix, k.any("a text"), "Before the content of a system message.");
    k.key("system_suffix", &C::system_suffix, k.any("a text"), "Behind it.");
    k.key("default_system", &C::default_system, k.any("a text"),
          "System message of a chat that does not begin with one. Empty: none.");
    k.key("user_prefix", &C::user_prefix, k.any("a text"), "Before the content of a user's message.");
    k.key("user_suffix", &C::user_suffix, k.any("a text"), "Behind it.");
    k.key("assistant_prefix", &C::assistant_prefix, k.any("a text"), "Before the content of an assistant's message.");
    k.key("assistant_end", &C::assistant_end, k.any("a text"),
          "Behind the content of an assistant's message, and learned like it: how the model ends its turn.");
    k.key("assistant_suffix", &C::assistant_suffix, k.any("a text"), "Behind `assistant_end`, and not learned.");
    k.key(
        "special_tokens", &C::special_tokens, k.list_of("texts"),
        "Parts of the texts above that must be tokens of the tokenizer, such as `<|im_end|>`: an error if one is not. Any that "
        "is becomes its id, listed or not.");
    k.key("trim", &C::trim, k.yes_or_no(), "Drop white space around the content of messages.");
  }
};

struct DocumentTokenConfig {
  std::int64_t id = -1;
  DocumentTokenPlace place = DocumentTokenPlace::begin;

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("id", &DocumentTokenConfig::id, k.whole(-1, limits::vocab),
          "Token between documents; -1: there is none. Shards (but those of Megatron-LM and of `plait data pack`, which say "
          "where documents begin) hold it; to documents of text it is added, but not to chats.");
    k.choice(
        "place", &DocumentTokenConfig::place,
        "Whether it is the first token of each document (llm.c and modded-nanogpt: 50256, GPT-2's <|endoftext|>) or the last "
        "one (nanoGPT).");
  }
};

// One of the sources that training data is blended from.
struct DataSourceConfig {
  std::vector<std::string> files;  // globs
  double weight = 1.0;             // in proportion to the others'
  friend bool operator==(const DataSourceConfig&, const DataSourceConfig&) = default;
};

struct DataConfig {
  std::vector<std::string> train;         // globs: text files, or token shards (*.bin)
  std::vector<DataSourceConfig> sources;  // instead of `train`
  std::vector<std::string> validation;    // empty: `validation_fraction` of each training file's end
  double validation_fraction = 0.1;
  std::string tokenizer =
      "bytes";  // bytes | sentencepiece | huggingface | tokens (data is token shards already) | random (for benchmarks)
  SentencePieceConfig sentencepiece;
  HuggingFaceConfig huggingface;
  JsonlConfig jsonl;
  ChatFormat chat_template = ChatFormat::none;
  CustomTemplateConfig custom_template;
  DocumentTokenConfig document_token;
  std::int64_t sequence_length = 256;
  Documents documents = Documents::joined;
  bool shuffle = true;
  std::string no_tokenizer;  // no key: why the tokenizer is `tokens` and not that of the model, where model.from says so

  std::vector<DataSourceConfig> training_sources() const;  // `sources`, or `train` as the only one
  std::vector<std::string> training_files() const;         // the globs of all of them
  const char* training_key() const { return sources.empty() ? "data.train" : "data.sources"; }

  template <typename Keys>
  static void declare(Keys& k) {
    k.key("train", &DataConfig::train, k.globs(),
          "Files to train on. `*` and `?` match within a folder, `**` any depth, but none behind links. Text for `bytes`, "
          "`sentencepiece` and `huggingface`, shards for `tokens`. Of a text named `*.jsonl` each line is a document, and what "
          "is "
          "named `*.zst` is decompressed (docs/data.md). Quote a glob that begins with `*`, which YAML reads as an alias.");
    k.key(
        "sources", &DataConfig::sources, k.data_sources(),
        "Several sources to train on, in place of `train`: `[{files: [code/**], weight: 0.7}, {files: [books/*.bin], weight: "
        "0.3}]`. Of any stretch of samples each has its share, its weight over the sum of all, and goes through its own epochs "
        "(docs/data.md). `files` are as in `train`; `weight` may be left out, and is 1 then.");
    k.key("validation", &DataConfig::validation, k.globs(),
          "Files to validate on. Empty: the last `validation_fraction` of each training file, which is then not trained on; of "
          "several sources in the shares of their weights.");
    k.key("validation_fraction", &DataConfig::validation_fraction, k.fraction_below_one(),
          "Share of each training file that is kept for validation while `validation` is empty. 0: no validation.");
    k.key("tokenizer", &DataConfig::tokenizer, k.one_of({"bytes", "sentencepiece", "huggingface", "tokens", "random"}),
          "`bytes`: every byte is a token. `sentencepiece`: see `data.sentencepiece`; may be written `tokenizer: "
          "{sentencepiece: {vocab: 8192}}`. `huggingface`: see `data.huggingface`; may be written `tokenizer: {file: "
          "tokenizer.json}`. With all three, a `*.bin` file that begins with a shard's magic number, or has an index "
          "of Megatron-LM beside it, is a shard made with that tokenizer (`plait data pack`). `tokens`: all files are "
          "token shards, of llm.c and modded-nanogpt (header of 256 int32, magic 20240520 or 20240801), of nanoGPT "
          "(raw uint16, named `train.bin`, `val.bin` or `*.u16.bin`), or of Megatron-LM (`*.bin` with its `*.idx` "
          "beside it); tokens are checked against `model.vocab` as they are used. `random`: uniform random tokens, no "
          "files, for benchmarks.");
    k.section("sentencepiece", &DataConfig::sentencepiece, "For `data.tokenizer: sentencepiece`: exactly one of the two.");
    k.section("huggingface", &DataConfig::huggingface, "For `data.tokenizer: huggingface`.");
    k.section("jsonl", &DataConfig::jsonl,
              "For files named `*.jsonl` or `*.jsonl.zst`: each line is a JSON object, and a document.");
    k.choice("chat_template", &DataConfig::chat_template,
             "How chats are written out: lines of JSONL with `messages`, `[{role: user, content: ...}, ...]`. Only what the "
             "assistant says, and that it ends there, is learned. `none`: lines are read for their text. The others are as "
             "published with these models (docs/data.md); `custom`: see `data.custom_template`.");
    k.section("custom_template", &DataConfig::custom_template, "For `data.chat_template: custom`.");
    k.section("document_token", &DataConfig::document_token, "What is between documents.");
    k.key("sequence_length", &DataConfig::sequence_length, k.whole(1, limits::sequence),
          "Tokens in a sequence. Attention does not cross sequences.");
    k.choice("documents", &DataConfig::documents,
             "What a sequence that holds several documents is to the model. `joined`: one text. `separate`: each document by "
             "itself; its tokens see no other document, and its positions count from its own first token.");
    k.key("shuffle", &DataConfig::shuffle, k.yes_or_no(),
          "Go through the training text in an order of its own in each epoch; off: as it lies. Either way every window of "
          "`sequence_length` tokens comes once in an epoch (docs/data.md).");
  }
};

}  // namespace plait
