#include "data/huggingface/definition.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <unordered_set>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/json.h"
#include "core/limits.h"
#include "data/huggingface/byte_pairs.h"
#include "data/huggingface/nfc.h"

namespace plait::data {
namespace {

using Field = BasicJsonField<nlohmann::json>;

constexpr int deepest_sequence = 8;
constexpr std::size_t longest_added_token = 4096;
// GPT-2's pattern, built into the pre-tokenizer ByteLevel.
constexpr std::string_view byte_level_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The parts of a Sequence, or the part itself; empty if there is none.
std::vector<Field> parts_of(const Field& field, const std::string& list, int depth = 0) {
  if (!field.is_there()) return {};
  if (field["type"].text() != "Sequence") return {field};
  if (depth == deepest_sequence) field.refuse(fmt::format("must not be nested deeper than {}", deepest_sequence));
  std::vector<Field> parts;
  for (const Field& item : field[list].items()) {
    const std::vector<Field> inner = parts_of(item, list, depth + 1);
    parts.insert(parts.end(), inner.begin(), inner.end());
  }
  return parts;
}

void read_normalizer(const Field& normalizer, TokenizerDefinition& to) {
  for (const Field& part : parts_of(normalizer, "normalizers")) {
    if (part["type"].text() != "NFC") part["type"].refuse("must be NFC or absent: plait knows no other normalizer");
    to.nfc = true;
  }
}

SplitPattern split_pattern(const Field& field, const std::string& pattern, SplitBehavior behavior, bool invert) {
  try {
    return {pattern, behavior, invert};
  } catch (const std::invalid_argument& error) {
    field.refuse(fmt::format("cannot be used: {}", error.what()));
  }
}

SplitPattern read_split(const Field& split) {
  const Field pattern = split["pattern"], regex = pattern["Regex"], literal = pattern["String"];
  if (regex.is_there() == literal.is_there()) pattern.refuse("must be {Regex: ...} or {String: ...}");
  static const std::map<std::string, SplitBehavior> behaviors = {{"Removed", SplitBehavior::removed},
                                                                 {"Isolated", SplitBehavior::isolated},
                                                                 {"MergedWithPrevious", SplitBehavior::merged_with_previous},
                                                                 {"MergedWithNext", SplitBehavior::merged_with_next},
                                                                 {"Contiguous", SplitBehavior::contiguous}};
  const auto behavior = behaviors.find(split["behavior"].text());
  if (behavior == behaviors.end())
    split["behavior"].refuse("must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  const bool invert = split["invert"].flag_or(false);
  if (!regex.is_there()) return split_pattern(literal, pcre2_literal(literal.text()), behavior->second, invert);
  std::string translated;
  try {
    translated = pcre2_pattern(regex.text());
  } catch (const std::invalid_argument& error) {
    regex.refuse(fmt::format("has {}, which plait does not read as `tokenizers` does", error.what()));
  }
  return split_pattern(regex, translated, behavior->second, invert);
}

void read_pre_tokenizer(const Field& pre_tokenizer, TokenizerDefinition& to) {
  const std::vector<Field> parts = parts_of(pre_tokenizer, "pretokenizers");
  if (parts.empty() || parts.back()["type"].text() != "ByteLevel") {
    (parts.empty() ? pre_tokenizer : parts.back()["type"])
        .refuse("must be ByteLevel, alone or at the end of a Sequence: plait knows byte-level BPE only");
  }
  for (const Field& part : parts) {
    const std::string type = part["type"].text();
    if (type == "Split") {
      to.splits.push_back(read_split(part));
    } else if (type == "Digits") {
      const bool each = part["individual_digits"].flag_or(false);
      to.splits.push_back(split_pattern(part, "\\p{N}", each ? SplitBehavior::isolated : SplitBehavior::contiguous, false));
    } else if (type == "ByteLevel" && &part == &parts.back()) {
      to.prefix_space = part["add_prefix_space"].flag_or(true);
      if (to.prefix_space && !to.splits.empty()) part["add_prefix_space"].refuse("must be false behind other pre-tokenizers");
      if (part["use_regex"].flag_or(true))
        to.splits.push_back(split_pattern(part, pcre2_pattern(byte_level_pattern), SplitBehavior::isolated, false));
    } else {
      part["type"].refuse("must be Split or Digits, and ByteLevel at the end");
    }
  }
}

void read_vocabulary(const Field& vocab, TokenizerDefinition& to) {
  if (!vocab.json().is_object()) vocab.refuse("must be an object of tokens and ids");
  to.model.bytes.fill(BytePairModel::no_token);
  to.text.reserve(vocab.json().size());
  for (const auto& [token, id] : vocab.json().items()) {
    const Field field = vocab[token];
    const auto number = static_cast<std::int32_t>(field.whole(0, limits::vocab.most - 1));
    const auto bytes = bytes_of_token(token);
    if (!to.text.emplace(number, bytes.value_or(token)).second) field.refuse("must be an id that no other token has");
    if (bytes && bytes->size() == 1) to.model.bytes[static_cast<unsigned char>(bytes->front())] = number;
    to.vocab = std::max<std::int64_t>(to.vocab, number + 1);
  }
}

std::int32_t token_id(const Field& vocab, const std::string& token, const Field& named_by) {
  const auto found = vocab.json().find(token);
  if (found == vocab.json().end()) named_by.refuse(fmt::format("names '{}', which model.vocab does not have", token));
  return found->get<std::int32_t>();
}

void read_merges(const Field& merges, const Field& vocab, TokenizerDefinition& to) {
  for (const Field& merge : merges.items()) {
    std::string left, right;
    if (merge.json().is_string()) {
      const std::string& text = merge.text();
      if (text.starts_with("#version")) continue;  // the first line of a merges.txt
      const auto space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        merge.refuse("must be two tokens with a space between them");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      const std::vector<Field> pair = merge.items();
      if (pair.size() != 2) merge.refuse("must be two tokens");
      left = pair[0].text();
      right = pair[1].text();
    }
    to.model.merges.push_back(
        {token_id(vocab, left, merge), token_id(vocab, right, merge), token_id(vocab, left + right, merge)});
  }
}

// True for bytes that occur in UTF-8.
bool is_of_utf8(unsigned byte) { return byte < 0xc0 || (byte >= 0xc2 && byte <= 0xf4); }

void read_model(const Field& model, TokenizerDefinition& to) {
  const Field type = model["type"];
  if (type.is_there() && type.text() != "BPE") type.refuse("must be BPE: plait knows byte-level BPE only");
  const Field dropout = model["dropout"];
  if (dropout.is_there() && dropout.json() != 0) dropout.refuse("must be null or 0: tokens would differ from run to run");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model[key].is_there() && !model[key].text().empty()) model[key].refuse("must be empty with byte-level BPE");
  }
  if (model["byte_fallback"].flag_or(false)) {
    model["byte_fallback"].refuse("must be false: byte-level BPE has all bytes; for SentencePiece's, use its .model file");
  }
  const Field vocab = model["vocab"];
  read_vocabulary(vocab, to);
  read_merges(model["merges"], vocab, to);
  const Field unknown = model["unk_token"];
  if (unknown.is_there()) to.model.unknown = token_id(vocab, unknown.text(), unknown);
  to.model.fuse_unknown = model["fuse_unk"].flag_or(false);
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (to.model.unknown == BytePairModel::no_token && to.model.bytes[byte] == BytePairModel::no_token && is_of_utf8(byte))
      vocab.refuse(fmt::format("must have a token for byte 0x{:02x}, or the model an unk_token", byte));
  }
  if (!model["ignore_merges"].flag_or(false)) return;
  for (const auto& [token, id] : vocab.json().items()) {
    if (auto bytes = bytes_of_token(token)) to.model.whole.emplace(std::move(*bytes), id.get<std::int32_t>());
  }
}

void read_added_tokens(const Field& added, const Field& vocab, TokenizerDefinition& to) {
  if (!added.is_there()) return;
  // `tokenizers` takes the id of the vocabulary, else counts on from its size, whatever the file says.
  auto next = static_cast<std::int64_t>(vocab.json().size());
  std::set<std::string> contents;
  for (const Field& field : added.items()) {
    AddedToken token;
    token.content = field["content"].text();
    if (token.content.empty() || token.content.size() > longest_added_token)
      field["content"].refuse(fmt::format("must have 1 to {} bytes", longest_added_token));
    if (!contents.insert(token.content).second) field["content"].refuse("must be there once");
    const auto known = vocab.json().find(token.content);
    const std::int64_t id = known != vocab.json().end() ? known->get<std::int64_t>() : next++;
    token.id = static_cast<std::int32_t>(field["id"].whole(0, limits::vocab.most - 1));
    if (token.id != id) {
      field["id"].refuse(known != vocab.json().end()
                             ? fmt::format("must be {}, the id of '{}' in model.vocab", id, token.content)
                             : fmt::format("must be {}: ids of added tokens count on from the size of model.vocab", id));
    }
    token.single_word = field["single_word"].flag_or(false);
    token.lstrip = field["lstrip"].flag_or(false);
    token.rstrip = field["rstrip"].flag_or(false);
    token.special = field["special"].flag_or(false);
    token.normalized = field["normalized"].flag_or(!token.special);
    if (known == vocab.json().end() && to.text.contains(token.id)) field["id"].refuse("must be an id that no other token has");
    to.text[token.id] = token.content;
    to.vocab = std::max<std::int64_t>(to.vocab, token.id + 1);
    to.added.push_back(std::move(token));
  }
  // `tokenizers` searches for them in this order.
  std::ranges::stable_partition(to.added, &AddedToken::special);
}

void read_template(const Field& processing, TokenizerDefinition& to) {
  bool behind = false;
  for (const Field& piece : processing["single"].items()) {
    if (piece.json().is_object() && piece.json().contains("Sequence")) {
      if (behind) piece.refuse("must be the only Sequence of the template");
      behind = true;
      continue;
    }
    const Field special = processing["special_tokens"][piece["SpecialToken"]["id"].text()];
    if (!special.is_there()) piece["SpecialToken"]["id"].refuse("must be one of special_tokens");
    for (const Field& id : special["ids"].items()) {
      const auto token = static_cast<std::int32_t>(id.whole(0, to.vocab - 1));
      (behind ? to.suffix : to.prefix).push_back(token);
    }
  }
  if (!behind) processing["single"].refuse("must have a Sequence");
}

void read_post_processor(const Field& post_processor, TokenizerDefinition& to) {
  bool has_template = false;
  for (const Field& part : parts_of(post_processor, "processors")) {
    const std::string type = part["type"].text();
    if (type == "ByteLevel") continue;  // changes offsets only
    if (type != "TemplateProcessing" || has_template) part["type"].refuse("must be ByteLevel, or one TemplateProcessing");
    has_template = true;
    read_template(part, to);
  }
}

nlohmann::json parse_document(const std::string& json, const std::string& origin) {
  return parse_json(json, [&](const std::string& problem) { throw ConfigError({{origin, "", problem, "", 0}}); });
}

JsonSource source_of(const std::string& origin) {
  return {.name = origin, .longest_text = Field::no_limit, .refuse = JsonSource::as_problem(origin)};
}

void read_decoder(const Field& decoder) {
  const std::vector<Field> parts = parts_of(decoder, "decoders");
  if (parts.size() != 1 || parts[0]["type"].text() != "ByteLevel") decoder.refuse("must be ByteLevel, as the pre-tokenizer is");
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const std::string& json, const std::string& origin) {
  const nlohmann::json document = parse_document(json, origin);
  const JsonSource source = source_of(origin);
  const Field added = Field(document, source)["added_tokens"];
  std::vector<AddedToken> tokens;
  if (!added.is_there()) return tokens;
  for (const Field& field : added.items()) {
    const auto id = static_cast<std::int32_t>(field["id"].whole(0, limits::vocab.most - 1));
    tokens.push_back({.content = field["content"].text(), .id = id});
  }
  return tokens;
}

TokenizerDefinition read_tokenizer_definition(const std::string& json, const std::string& origin) {
  const nlohmann::json document = parse_document(json, origin);
  const JsonSource source = source_of(origin);
  const Field file(document, source);
  if (!file["model"].is_there()) file["model"].refuse("must be there: this is no tokenizer.json of Hugging Face's tokenizers");
  for (const char* key : {"truncation", "padding"}) {
    if (file[key].is_there()) file[key].refuse("must be null: plait encodes all of a text and nothing else");
  }
  TokenizerDefinition definition;
  read_normalizer(file["normalizer"], definition);
  read_pre_tokenizer(file["pre_tokenizer"], definition);
  read_model(file["model"], definition);
  read_added_tokens(file["added_tokens"], file["model"]["vocab"], definition);
  read_post_processor(file["post_processor"], definition);
  read_decoder(file["decoder"]);
  return definition;
}

}  // namespace plait::data
