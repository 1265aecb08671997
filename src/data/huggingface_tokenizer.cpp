// Tokenizers of Hugging Face's `tokenizers` library, from their tokenizer.json.
#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/file.h"
#include "core/utf8.h"
#include "data/files.h"
#include "data/huggingface/definition.h"
#include "data/huggingface/nfc.h"
#include "data/tokenizer.h"

namespace plait::data {
namespace {

constexpr std::size_t edge_context = 128;  // bytes before and behind a cut that show whether a piece reaches across

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_graphic(char c) { return c > ' ' && c < '\x7f'; }

// The places where a text may be cut so that the tokens of the parts are those of the whole: after a single line break, and in
// front of a single space. If a piece of a pattern reaches across one of these (GPT-4o's takes ";\n//" as one), `is_edge` is
// false. An added token can also reach across, or take the space: then the characters next to the cut are blocked.
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

  // The last place in text[1, most]; 0 if there is none, or none among those that are tried.
  std::size_t last(std::string_view text, std::size_t most, const std::function<bool(std::size_t)>& is_edge) const {
    int tries = 0;
    for (std::size_t at = std::min(most, text.size() - 1); at > 1 && tries < most_tries; --at) {
      const char before = text[at - 1], here = text[at];
      if (before == '\n' && is_ascii_graphic(text[at - 2]) && is_ascii_graphic(here) &&
          !behind_line_[static_cast<unsigned char>(here)] && (++tries, is_edge(at)))
        return at;
    }
    tries = 0;
    for (std::size_t at = std::min(most, text.size() - 2); at > 0 && tries < most_tries; --at) {
      if (text[at] == ' ' && is_ascii_letter(text[at - 1]) && is_ascii_letter(text[at + 1]) &&
          !before_space_[static_cast<unsigned char>(text[at - 1])] && (++tries, is_edge(at)))
        return at;
    }
    return 0;
  }

 private:
  static constexpr int most_tries = 10'000;
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
    definition_.model = {};  // moved into the encoder
  }

  std::string kind() const override { return "huggingface"; }
  std::int64_t vocab() const override { return definition_.vocab; }
  bool takes_any_bytes() const override { return true; }

  std::size_t piece_length(std::string_view text, std::size_t most) const override {
    if (text.size() <= most) return text.size();
    if (most == 0) return data::piece_length(text, most);
    std::unique_ptr<Work> work = take_work();
    const std::string_view seen = text.substr(0, most + 2);
    const std::size_t cut = cuts_.last(text, most, [&](std::size_t at) { return is_edge(seen, at, work->split); });
    give_back(std::move(work));
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

  std::vector<AddedTokenName> added_tokens() const override {
    std::vector<AddedTokenName> names;
    for (const AddedToken& token : definition_.added) names.push_back({token.id, token.special});
    return names;
  }

  std::string definition() const override { return json_; }
  void save(const std::filesystem::path& directory) const override {
    write_text_file(directory / tokenizer_description, json_);
  }

 protected:
  std::string normalized(std::string_view text) const override {
    std::string storage;
    return std::string(definition_.nfc ? nfc(text, storage) : text);
  }

  std::vector<TextSection> sections(std::string_view text, const AddedTokenFilter& counts) const override {
    std::vector<TextSection> all;
    for (const TextSection& section : in_text_.sections(text, counts)) {
      if (section.token != TextSection::no_token) {
        all.push_back(section);
        continue;
      }
      const auto first = static_cast<std::size_t>(section.text.data() - text.data());
      const auto in_section = [&](std::int32_t token, std::size_t begin, std::size_t end) {
        return counts(token, first + begin, first + end);
      };
      for (const TextSection& part : in_normalized_.sections(section.text, in_section)) all.push_back(part);
    }
    return all;
  }

  void encode_section(std::string_view text, bool begins, std::vector<std::int32_t>& tokens,
                      std::vector<std::size_t>& ends) const override {
    std::unique_ptr<Work> work = take_work();
    work->ends = &ends;
    encode_text(text, begins, *work, tokens);
    work->ends = nullptr;
    give_back(std::move(work));
  }

 private:
  // Working memory of one call. Kept from call to call, since it remembers pieces; there are as many as concurrent calls.
  struct Work {
    BytePairScratch pairs;
    SplitScratch split;
    std::string prefixed;
    std::vector<std::size_t>* ends = nullptr;  // ends of a text's tokens, if wanted
    const char* text = nullptr;                // that text's first byte, or its position without the prefix
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
    work.text = text.data() + (text.data() == work.prefixed.data() ? 1 : 0);
    split(text, 0, work.split, [&](std::string_view piece) {
      encoder_.encode(piece, work.pairs, tokens);
      if (work.ends != nullptr) note_ends(piece, tokens, work);
    });
  }

  // Appends to `ends` the ends of a piece's tokens that are not in it yet.
  void note_ends(std::string_view piece, std::span<const std::int32_t> tokens, const Work& work) const {
    std::vector<std::size_t>& ends = *work.ends;
    const std::ptrdiff_t last = piece.data() + piece.size() - work.text;
    std::ptrdiff_t at = piece.data() - work.text;
    for (std::size_t i = ends.size(); i < tokens.size(); ++i) {
      const auto found = definition_.text.find(tokens[i]);
      at = std::min(last, at + (found != definition_.text.end() ? std::ssize(found->second) : 0));
      ends.push_back(static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, i + 1 == tokens.size() ? last : at)));
    }
  }

  template <typename Piece>  // piece(std::string_view)
  void split(std::string_view text, std::size_t step, SplitScratch& scratch, const Piece& piece) const {
    if (step == definition_.splits.size()) return piece(text);
    definition_.splits[step].split(text, scratch, [&](std::string_view part) { split(part, step + 1, scratch, piece); });
  }

  // True if a piece of the text around `at` ends or begins there.
  bool is_edge(std::string_view text, std::size_t at, SplitScratch& scratch) const {
    std::size_t begin = at - std::min(at, edge_context), end = std::min(text.size(), at + edge_context);
    while (begin < at && is_utf8_continuation(text[begin])) ++begin;
    while (end < text.size() && end > at && is_utf8_continuation(text[end])) --end;
    std::string before, behind;
    std::string around(repaired_utf8(text.substr(begin, at - begin), before));
    const std::size_t edge = around.size();
    around += repaired_utf8(text.substr(at, end - at), behind);
    bool found = false;
    split(around, 0, scratch, [&](std::string_view piece) {
      const auto first = static_cast<std::size_t>(piece.data() - around.data());
      found |= first == edge || first + piece.size() == edge;
    });
    return found;
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

std::string definition_text(const std::filesystem::path& file) {
  const DataFile data(file);
  if (data.size() > most_definition_bytes) {
    throw ConfigError(
        {{file.string(), "", fmt::format("has {} bytes, must be at most {}", data.size(), most_definition_bytes), "", 0}});
  }
  return data.text();
}

}  // namespace

std::unique_ptr<Tokenizer> load_huggingface(const std::filesystem::path& file) {
  return std::make_unique<HuggingFaceTokenizer>(definition_text(file), file.string());
}

std::vector<AddedToken> added_tokens_of(const std::filesystem::path& file) {
  return read_added_tokens(definition_text(file), file.string());
}

}  // namespace plait::data
