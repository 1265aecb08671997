#include "data/tokenizer.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/file.h"
#include "core/utf8.h"
#include "data/files.h"
#include "data/token_shard.h"

namespace plait::data {
namespace {

// The parts as one text.
class PartedText {
 public:
  void add(const std::string& text, const TextPart& part) {
    text_ += text;
    ends_.push_back(text_.size());
    parts_.push_back(part);
  }
  const std::string& text() const { return text_; }

  // For the parts with bytes in [begin, end); if that is empty, for the byte at `begin`.
  bool of_template(std::size_t begin, std::size_t end) const {
    return std::ranges::all_of(within(begin, end), &TextPart::of_template);
  }
  bool learned(std::size_t begin, std::size_t end) const { return std::ranges::any_of(within(begin, end), &TextPart::learned); }

 private:
  std::span<const TextPart> within(std::size_t begin, std::size_t end) const {
    const auto first = std::ranges::upper_bound(ends_, begin) - ends_.begin();
    const auto last = std::ranges::lower_bound(ends_, std::max(end, begin + 1)) - ends_.begin();
    if (last == std::ssize(ends_)) return {};
    return std::span(parts_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first) + 1);
  }

  std::string text_;
  std::vector<std::size_t> ends_;
  std::vector<TextPart> parts_;
};

}  // namespace

std::vector<TextSection> Tokenizer::sections(std::string_view text, const AddedTokenFilter&) const {
  return text.empty() ? std::vector<TextSection>() : std::vector<TextSection>{{text}};
}

PartTokens Tokenizer::encode_parts(std::span<const TextPart> parts, const TokenSet& reserved) const {
  PartedText whole;
  for (const TextPart& part : parts) whole.add(normalized(part.text), part);
  PartTokens result;
  const auto add = [&](std::int32_t token, std::size_t begin, std::size_t end) {
    if (reserved.contains(token) && !whole.of_template(begin, end)) {
      throw ConfigError(fmt::format("holds '{}', which the tokenizer cannot tell from the chat template's own token",
                                    whole.text().substr(begin, end - begin)));
    }
    result.tokens.push_back(token);
    result.learned.push_back(whole.learned(begin, end));
  };
  const auto counts = [&](std::int32_t token, std::size_t begin, std::size_t end) {
    return !reserved.contains(token) || whole.of_template(begin, end);
  };
  bool begins = true;
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;
  for (const TextSection& section : sections(whole.text(), counts)) {
    std::size_t begin = static_cast<std::size_t>(section.text.data() - whole.text().data());
    if (section.token != TextSection::no_token) {
      result.tokens.push_back(section.token);
      result.learned.push_back(whole.learned(begin, begin + section.text.size()));
    } else {
      tokens.clear();
      ends.clear();
      encode_section(section.text, begins, tokens, ends);
      const std::size_t first = begin;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        add(tokens[i], begin, first + ends[i]);
        begin = first + ends[i];
      }
    }
    begins = section.token != TextSection::no_token;
  }
  return result;
}

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string kind() const override { return "bytes"; }
  std::int64_t vocab() const override { return 256; }
  std::vector<std::int32_t> encode_piece(std::string_view text, bool) const override {
    std::vector<std::int32_t> tokens(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<unsigned char>(text[i]);
    return tokens;
  }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) {
      if (token >= 0 && token < 256) {
        text += static_cast<char>(token);
      } else {
        text += fmt::format(" <{}>", token);  // a model whose vocabulary is larger than 256 can say it
      }
    }
    return text;
  }
  bool takes_any_bytes() const override { return true; }
  std::string definition() const override { return ""; }
  void save(const std::filesystem::path& directory) const override { save_description(*this, directory); }

 protected:
  void encode_section(std::string_view text, bool begins, std::vector<std::int32_t>& tokens,
                      std::vector<std::size_t>& ends) const override {
    tokens = encode_piece(text, begins);
    ends.resize(tokens.size());
    std::iota(ends.begin(), ends.end(), std::size_t{1});
  }
};

class TokenIdTokenizer final : public Tokenizer {
 public:
  TokenIdTokenizer(std::string kind, std::int64_t vocab, std::string why)
      : kind_(std::move(kind)), why_(std::move(why)), vocab_(vocab) {}
  std::string kind() const override { return kind_; }
  std::int64_t vocab() const override { return vocab_; }
  std::vector<std::int32_t> encode_piece(std::string_view, bool) const override {
    const std::string why = why_.empty() ? "" : " (" + why_ + ")";
    throw ConfigError(
        {{"data.tokenizer", kind_, "cannot encode text: the token ids were made by another program" + why, "", 0}});
  }
  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) text += fmt::format(" <{}>", token);
    return text;
  }
  std::string definition() const override { return std::to_string(vocab_); }
  void save(const std::filesystem::path& directory) const override { save_description(*this, directory); }

 protected:
  void encode_section(std::string_view text, bool begins, std::vector<std::int32_t>& tokens,
                      std::vector<std::size_t>&) const override {
    tokens = encode_piece(text, begins);
  }

 private:
  std::string kind_, why_;
  std::int64_t vocab_;
};

[[noreturn]] void damaged(const std::filesystem::path& file, const std::string& why) {
  throw ConfigError({{file.string(), "", why, "", 0}});
}

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> make_token_id_tokenizer(std::string kind, std::int64_t vocab, std::string why) {
  return std::make_unique<TokenIdTokenizer>(std::move(kind), vocab, std::move(why));
}

std::unique_ptr<Tokenizer> create_tokenizer(const Config& config) {
  const DataConfig& data = config.data;
  if (data.tokenizer == "bytes") return make_byte_tokenizer();
  if (data.tokenizer == "huggingface") return load_huggingface(data.huggingface.file);
  if (data.tokenizer != "sentencepiece")
    return make_token_id_tokenizer(data.tokenizer, config.model.vocab, data.tokenizer == "tokens" ? data.no_tokenizer : "");
  if (!data.sentencepiece.model.empty()) return load_sentencepiece(data.sentencepiece.model);
  std::vector<std::filesystem::path> texts;
  for (const MatchedFile& file : match_files(data.training_files(), data.training_key())) {
    if (!is_token_shard(file.path) && !is_shard_index(file.path)) texts.push_back(file.path);
  }
  return train_sentencepiece(texts, data.sentencepiece.vocab);
}

std::vector<std::int32_t> Tokenizer::with_special_tokens(std::vector<std::int32_t> tokens, bool, bool) const { return tokens; }

std::size_t Tokenizer::piece_length(std::string_view text, std::size_t most) const { return data::piece_length(text, most); }

std::size_t piece_length(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text.size();
  if (const auto newline = text.rfind('\n', most - 1); newline < most) return newline + 1;
  std::size_t end = most;
  while (end > 0 && most - end < 4 && is_utf8_continuation(text[end])) --end;
  return end > 0 && most - end < 4 ? end : most;
}

void save_description(const Tokenizer& tokenizer, const std::filesystem::path& directory) {
  const nlohmann::ordered_json description = {{"kind", tokenizer.kind()}, {"vocab", tokenizer.vocab()}};
  write_text_file(directory / tokenizer_description, description.dump(2) + "\n");
}

TokenSet special_tokens(const Tokenizer& tokenizer) {
  TokenSet special;
  for (const AddedTokenName& token : tokenizer.added_tokens()) {
    if (token.special) special.insert(token.id);
  }
  return special;
}

bool has_tokenizer(const std::filesystem::path& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory / tokenizer_description, ignored);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / tokenizer_description;
  const auto description = nlohmann::json::parse(DataFile(file).text(), nullptr, false);
  if (description.is_object() && description.contains("model")) return load_huggingface(file);
  if (!description.is_object() || !description.contains("kind") || !description["kind"].is_string() ||
      !description.contains("vocab") || !description["vocab"].is_number_integer()) {
    damaged(file, "is damaged: must be a JSON object with kind and vocab");
  }
  const auto kind = description["kind"].get<std::string>();
  const auto vocab = description["vocab"].get<std::int64_t>();
  std::unique_ptr<Tokenizer> tokenizer;
  if (kind == "bytes") tokenizer = make_byte_tokenizer();
  if (kind == "tokens" || kind == "random") tokenizer = make_token_id_tokenizer(kind, vocab);
  if (kind == "sentencepiece") tokenizer = load_sentencepiece(directory / tokenizer_model);
  if (!tokenizer) damaged(file, fmt::format("has kind '{}', must be one of bytes, sentencepiece, tokens, random", kind));
  if (tokenizer->vocab() != vocab) {
    damaged(file, fmt::format("says a vocabulary of {}, but the tokenizer has {}", vocab, tokenizer->vocab()));
  }
  return tokenizer;
}

std::int64_t vocabulary(const Config& config) {
  const Auto<std::int64_t>& wanted = config.data.sentencepiece.vocab;
  return wanted.is_auto() ? create_tokenizer(config)->vocab() : wanted.value();
}

}  // namespace plait::data
