// Tokenizers: text to tokens and back.
//
// A run keeps its tokenizer in its directory: tokenizer.json says which one it is, tokenizer.model is SentencePiece's model. A
// tokenizer of Hugging Face's `tokenizers` is its own tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "config/config.h"
#include "data/huggingface/added_tokens.h"

namespace plait::data {

// A text has parts that come from a template or from people.
struct TextPart {
  std::string_view text;
  bool of_template = false;
  bool learned = false;
};

// learned[i]: true if a byte of token i belongs to a learned part.
struct PartTokens {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learned;
};

using TokenSet = std::unordered_set<std::int32_t>;

// A token whose text is searched for before the rest is split, such as <|im_end|>.
struct AddedTokenName {
  std::int32_t id = 0;
  bool special = false;  // stands for no text
};

// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string kind() const = 0;    // data.tokenizer's name for it
  virtual std::int64_t vocab() const = 0;  // tokens are in [0, vocab)
  // ConfigError if the text cannot be encoded: bytes that are not UTF-8 (sentencepiece), or no tokenizer at all (tokens,
  // random: the ids came from elsewhere).
  std::vector<std::int32_t> encode(std::string_view text) const { return encode_piece(text, true); }
  // Encodes a piece (piece_length()) of a text; `begins`: it is the first.
  virtual std::vector<std::int32_t> encode_piece(std::string_view text, bool begins) const = 0;
  // The length to take when `text` is processed in pieces of about `most` bytes. If `text` goes on beyond `most` by two bytes
  // or more, the result depends on these alone. The tokens of the pieces are those of the whole if there is a place in `most`
  // bytes that no token reaches across: a single line break or space between words (huggingface), or any place where the
  // surrounding text shows that (sentencepiece, which tries spaces first).
  virtual std::size_t piece_length(std::string_view text, std::size_t most) const;
  // The tokens of the concatenated parts, as encode() of the whole gives them, except that tokens of `reserved` come from parts
  // of the template only: where people write <|im_end|>, it is text. Parts are UTF-8. ConfigError if the tokenizer has no other
  // tokens for it.
  PartTokens encode_parts(std::span<const TextPart> parts, const TokenSet& reserved) const;
  virtual std::vector<AddedTokenName> added_tokens() const { return {}; }
  virtual bool takes_any_bytes() const { return false; }  // else UTF-8 only
  // The tokens of a text, or of its first (`begins`) or last (`ends`) piece, with the tokens that the tokenizer puts around a
  // text, such as one for its beginning. huggingface: those of TemplateProcessing (`add_special_tokens`); no others add any.
  virtual std::vector<std::int32_t> with_special_tokens(std::vector<std::int32_t> tokens, bool begins = true,
                                                        bool ends = true) const;
  // Tokens without text, and ids without a tokenizer, appear as " <id>". More tokens only append to the text: tokens that are
  // bytes of a character give these bytes.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  // The token for any text outside the vocabulary. The number of bytes it stood for is unknown.
  virtual std::optional<std::int32_t> unknown() const { return std::nullopt; }
  // The part of encode()'s result that the kind does not decide: two tokenizers of one kind with equal definitions give the
  // same tokens. Without encode(), the size of the vocabulary.
  virtual std::string definition() const = 0;
  // Writes tokenizer.json, and tokenizer.model if there is a model, into an existing directory.
  virtual void save(const std::filesystem::path& directory) const = 0;

 protected:
  // Used by encode_parts(): the encoded form of a part's text; the sections of such a text (`counts`:
  // data/huggingface/added_tokens.h); and the tokens of a section without added tokens. ends[i]: where in `text` the bytes of
  // tokens[i] end.
  virtual std::string normalized(std::string_view text) const { return std::string(text); }
  virtual std::vector<TextSection> sections(std::string_view text, const AddedTokenFilter& counts) const;
  virtual void encode_section(std::string_view text, bool begins, std::vector<std::int32_t>& tokens,
                              std::vector<std::size_t>& ends) const = 0;
};

// Every byte is a token: vocabulary 256, any file will do.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// Stands in for the tokenizer of token shards and of random tokens: it knows only the size of the vocabulary. `why`: the reason
// it is used, for messages.
std::unique_ptr<Tokenizer> make_token_id_tokenizer(std::string kind, std::int64_t vocab, std::string why = "");

// An existing SentencePiece model. ConfigError naming the file, also if an `expected` token is not a piece of it with that id.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model, const std::vector<AddedToken>& expected = {});

// A tokenizer.json of Hugging Face's `tokenizers`: byte-level BPE (data/huggingface/definition.h lists the supported parts).
// Gives the ids that `tokenizers` gives with add_special_tokens=False. Text that is not UTF-8 is encoded with U+FFFD for each
// broken part, as Python's errors="replace" reads it; a character newer than the Unicode version of PCRE2 (Debian 12: 14)
// counts as unassigned: neither letter nor digit. decode() gives the bytes of all tokens, including special ones. ConfigError
// naming file, field and value.
std::unique_ptr<Tokenizer> load_huggingface(const std::filesystem::path& file);

// The contents and ids of the added tokens of a tokenizer.json of any kind; nothing else is read. ConfigError naming file,
// field and value.
std::vector<AddedToken> added_tokens_of(const std::filesystem::path& file);

// Trains a unigram model (Kudo 2018) with byte fallback, so that decode(encode(text)) == text. Single-threaded and without
// random choices: the same files give the same model. With more than 64 MiB of text, every n-th line is used. `key`: the option
// that gave `vocab`, for messages.
std::unique_ptr<Tokenizer> train_sentencepiece(const std::vector<std::filesystem::path>& files, std::int64_t vocab,
                                               const std::string& key = "data.sentencepiece.vocab");

// The tokenizer a configuration asks for. May train one, which takes a while: one rank (or the launcher) calls this once and
// saves the result to the run directory, the others and every resume call load_tokenizer.
std::unique_ptr<Tokenizer> create_tokenizer(const Config& config);

// The length to take when `text` is processed in pieces of about `most` bytes: up to the end of a line, else up to the end of a
// character, else `most`.
std::size_t piece_length(std::string_view text, std::size_t most);

// True if a tokenizer of this kind has text: the ids of the others came from elsewhere, and stand for no text.
inline bool has_text(const std::string& kind) { return kind != "tokens" && kind != "random"; }

// The added tokens that stand for no text, such as <|endoftext|>.
TokenSet special_tokens(const Tokenizer& tokenizer);

// True if save() wrote a tokenizer into this directory.
bool has_tokenizer(const std::filesystem::path& directory);

// The tokenizer that save() wrote. ConfigError naming the file when there is none or it is damaged.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory);

// The size of the configured tokenizer's vocabulary. A tokenizer that must be trained is not trained; its future size is
// returned.
std::int64_t vocabulary(const Config& config);

// The files that a saved tokenizer consists of. Private to src/data.
inline constexpr const char* tokenizer_description = "tokenizer.json";
inline constexpr const char* tokenizer_model = "tokenizer.model";

void save_description(const Tokenizer& tokenizer, const std::filesystem::path& directory);

}  // namespace plait::data
