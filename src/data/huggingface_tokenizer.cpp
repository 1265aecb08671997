// Tokenizers of Hugging Face's `tokenizers` library, from their tokenizer.json.
#include <array>
#include <mutex>
#include <nlohmann/json.hpp>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/file.h"
#include "core/utf8.h"
#include "data/files.h"
#include "data/huggingface/definition.h"
#include "data/huggingface/nfc.h"
#include "data/tokenizer_file.h"

namespace plait::data {
namespace {

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_graphic(char c) { return c > ' ' && c < '\x7f'; }

// Where a text may be cut so that the tokens of the parts are those of the whole: behind a line break that is alone, and in
// front of a space that is alone. No pattern of GPT-2's family has a piece across these. An added token can, or take the space:
// then the characters beside the cut are blocked.
class Cuts {
 public:
  explicit Cuts(const std::vector<AddedToken>& added) {
    for (const AddedToken& token : added) {
      const std::string& text = token.content;
      for (std::size_t i = 0; i + 1 < text.size(); ++i) {
        if (text[i] == '\n') behind_line_[static_cast<unsigned char>(text[i + 1])] = true;
        if (text[i + 1] == ' ') before_space_[static_cast<unsigned char>(text[i])] = true;
      }
      if (token.lstrip) behind_line_[static_cast<unsigned char>(text.front())] = true;
      if (token.rstrip) before_space_[static_cast<unsigned char>(text.back())] = true;
    }
  }

  // The last in text[1, most]; 0 if there is none.
  std::size_t last(std::string_view text, std::size_t most) const {
    for (std::size_t at = std::min(most, text.size() - 1); at > 1; --at) {
      const char before = text[at - 1], here = text[at];
      if (before == '\n' && is_ascii_graphic(text[at - 2]) && is_ascii_graphic(here) &&
          !behind_line_[static_cast<unsigned char>(here)])
        return at;
    }
    for (std::size_t at = std::min(most, text.size() - 2); at > 0; --at) {
      if (text[at] == ' ' && is_ascii_letter(text[at - 1]) && is_ascii_letter(text[at + 1]) &&
          !before_space_[static_cast<unsigned char>(text[at - 1])])
        return at;
    }
    return 0;
  }

 private:
  std::array<bool, 256> behind_line_{}, before_space_{};
};

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  HuggingFaceTokenizer(std::string json, const std::string& origin)
      : json_(std::move(json)),
        definition_(read_tokenizer_definition(json_, origin)),
        encoder_(definition_.model),
        in_text_(chosen(false)),
        in_normalized_(chosen(true)),
        cuts_(definition_.added) {
    definition_.model = {};  // the encoder has it
  }

  std::string kind() const override { return "huggingface"; }
  std::int64_t vocab() const override { return definition_.vocab; }
  bool takes_any_bytes() const override { return true; }

  std::size_t piece_length(std::string_view text, std::size_t most) const override {
    if (text.size() <= most) return text.size();
    const std::size_t cut = most > 0 ? cuts_.last(text, most) : 0;
    return cut > 0 ? cut : data::piece_length(text, most);
  }

  std::vector<std::int32_t> encode_piece(std::string_view text, bool begins) const override {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size() / 4);
    std::unique_ptr<Work> work = take_work();
    std::string repaired, normal;
    text = repaired_utf8(text, repaired);
    for (const TextSection& section : in_text_.sections(text)) {
      if (section.token != TextSection::no_token) {
        tokens.push_back(section.token);
        begins = true;
        continue;
      }
      for (const TextSection& part : in_normalized_.sections(definition_.nfc ? nfc(section.text, normal) : section.text)) {
        if (part.token != TextSection::no_token) {
          tokens.push_back(part.token);
        } else {
          encode_text(part.text, begins, *work, tokens);
        }
        begins = true;
      }
    }
    give_back(std::move(work));
    return tokens;
  }

  std::vector<std::int32_t> with_special_tokens(std::vector<std::int32_t> tokens, bool begins, bool ends) const override {
    if (begins) tokens.insert(tokens.begin(), definition_.prefix.begin(), definition_.prefix.end());
    if (ends) tokens.insert(tokens.end(), definition_.suffix.begin(), definition_.suffix.end());
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) {
      const auto found = definition_.text.find(token);
      text += found != definition_.text.end() ? found->second : fmt::format(" <{}>", token);
    }
    return text;
  }

  std::string definition() const override { return json_; }
  void save(const std::filesystem::path& directory) const override {
    write_text_file(directory / tokenizer_description, json_);
  }

 private:
  // What one call works in. Kept from call to call, since it remembers pieces; as many as there are calls at once.
  struct Work {
    BytePairScratch pairs;
    SplitScratch split;
    std::string prefixed;
  };

  AddedTokenFinder chosen(bool normalized) const {
    std::vector<AddedToken> tokens;
    std::string storage;
    for (const AddedToken& token : definition_.added) {
      if (token.normalized != normalized) continue;
      tokens.push_back(token);
      if (normalized && definition_.nfc) tokens.back().content = std::string(nfc(token.content, storage));
    }
    return AddedTokenFinder(std::move(tokens));
  }

  std::unique_ptr<Work> take_work() const {
    const std::scoped_lock lock(mutex_);
    if (idle_.empty()) return std::make_unique<Work>();
    std::unique_ptr<Work> work = std::move(idle_.back());
    idle_.pop_back();
    return work;
  }

  void give_back(std::unique_ptr<Work> work) const {
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(work));
  }

  void encode_text(std::string_view text, bool begins, Work& work, std::vector<std::int32_t>& tokens) const {
    if (definition_.prefix_space && begins && !text.starts_with(' ')) {
      work.prefixed = " ";
      work.prefixed += text;
      text = work.prefixed;
    }
    split(text, 0, work, tokens);
  }

  void split(std::string_view text, std::size_t step, Work& work, std::vector<std::int32_t>& tokens) const {
    if (step == definition_.splits.size()) return encoder_.encode(text, work.pairs, tokens);
    definition_.splits[step].split(text, work.split, [&](std::string_view piece) { split(piece, step + 1, work, tokens); });
  }

  const std::string json_;
  TokenizerDefinition definition_;
  const BytePairEncoder encoder_;
  const AddedTokenFinder in_text_, in_normalized_;
  const Cuts cuts_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Work>> idle_;
};

constexpr std::uint64_t most_definition_bytes = 256 * 1024 * 1024;

}  // namespace

std::unique_ptr<Tokenizer> load_huggingface(const std::filesystem::path& file) {
  const DataFile data(file);
  if (data.size() > most_definition_bytes) {
    throw ConfigError(
        {{file.string(), "", fmt::format("has {} bytes, must be at most {}", data.size(), most_definition_bytes), "", 0}});
  }
  return std::make_unique<HuggingFaceTokenizer>(data.text(), file.string());
}

}  // namespace plait::data
