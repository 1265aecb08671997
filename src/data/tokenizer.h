// Text to tokens and back.
//
// A run keeps its tokenizer in its directory: tokenizer.json says which one it is, tokenizer.model is SentencePiece's model.
// That of Hugging Face's `tokenizers` is its own tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "data/huggingface/added_tokens.h"
#include "data/text_parts.h"

namespace plait::data {

// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string kind() const = 0;    // data.tokenizer's name for it
  virtual std::int64_t vocab() const = 0;  // tokens are in [0, vocab)
  // ConfigError where the text cannot be encoded: bytes that are not UTF-8 (sentencepiece), or a tokenizer that is not
  // there (tokens, random: the ids came from elsewhere).
  std::vector<std::int32_t> encode(std::string_view text) const { return encode_piece(text, true); }
  // A text in pieces of piece_length(); `begins`: this is the first.
  virtual std::vector<std::int32_t> encode_piece(std::string_view text, bool begins) const = 0;
  // How much of `text` to take when it is worked through in pieces of about `most` bytes. Where `text` goes on beyond `most` by
  // two bytes or more, the result depends on these alone. The tokens of the pieces are those of the whole where there is a
  // place in `most` bytes that no token reaches across: a line break or space alone between words (huggingface), or any place
  // where what is around it shows that (sentencepiece, which looks for spaces first).
  virtual std::size_t piece_length(std::string_view text, std::size_t most) const;
  // The tokens of the parts written one after another, as encode() of the whole gives them, but that tokens of `reserved` come
  // from parts of the template only: where people write <|im_end|>, it is text. Parts are UTF-8. ConfigError where a tokenizer
  // has no other way to write it.
  PartTokens encode_parts(std::span<const TextPart> parts, const TokenSet& reserved) const;
  virtual std::vector<AddedTokenName> added_tokens() const { return {}; }
  virtual bool takes_any_bytes() const { return false; }  // else UTF-8 only
  // The tokens of a text, or of its first (`begins`) or last (`ends`) piece, with what the tokenizer puts before and behind a
  // text, such as a token of its beginning. huggingface: what TemplateProcessing says (`add_special_tokens`); nothing
  // otherwise.
  virtual std::vector<std::int32_t> with_special_tokens(std::vector<std::int32_t> tokens, bool begins = true,
                                                        bool ends = true) const;
  // Tokens without text, and the ids of a tokenizer that is not there, appear as " <id>". More tokens only append to the text:
  // those that are bytes of a character are these bytes.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  // The token of all text that the vocabulary does not have. How many bytes it stood for nobody knows.
  virtual std::optional<std::int32_t> unknown() const { return std::nullopt; }
  // What encode() depends on beside the kind: two tokenizers of one kind that have it in common give the same tokens. The size
  // of the vocabulary where there is no encode().
  virtual std::string definition() const = 0;
  // Writes tokenizer.json, and tokenizer.model if there is a model, into an existing directory.
  virtual void save(const std::filesystem::path& directory) const = 0;

 protected:
  // Of encode_parts(). The text of a part as it is encoded; sections of a text that is (`counts`:
  // data/huggingface/added_tokens.h); and the tokens of a section without added tokens. ends[i]: where in `text` the bytes of
  // tokens[i] end.
  virtual std::string normalized(std::string_view text) const { return std::string(text); }
  virtual std::vector<TextSection> sections(std::string_view text, const AddedTokenFilter& counts) const;
  virtual void encode_section(std::string_view text, bool begins, std::vector<std::int32_t>& tokens,
                              std::vector<std::size_t>& ends) const = 0;
};

// Every byte is a token: vocabulary 256, any file will do.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// Stands in for the tokenizer of token shards and of random tokens: knows only the size of the vocabulary. `why`: it is that
// one, for messages.
std::unique_ptr<Tokenizer> make_token_id_tokenizer(std::string kind, std::int64_t vocab, std::string why = "");

// An existing SentencePiece model. ConfigError naming the file, also where a token that is `expected` is no piece of it with
// that id.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model, const std::vector<AddedToken>& expected = {});

// A tokenizer.json of Hugging Face's `tokenizers`: byte-level BPE (data/huggingface/definition.h says what of it). Gives the
// ids that `tokenizers` gives with add_special_tokens=False. Text that is not UTF-8 is encoded with U+FFFD for each broken
// part, as Python's errors="replace" reads it; a character that Unicode assigned after the version that PCRE2 knows (Debian 12:
// 14) counts as unassigned: neither letter nor digit. decode() gives the bytes of all tokens, special ones too. ConfigError
// naming file, field and value.
std::unique_ptr<Tokenizer> load_huggingface(const std::filesystem::path& file);

// The added tokens of a tokenizer.json of any kind, of which nothing else is read: contents and ids. ConfigError naming file,
// field and value.
std::vector<AddedToken> added_tokens_of(const std::filesystem::path& file);

// Trains a unigram model (Kudo 2018) with byte fallback, so that decode(encode(text)) == text. Single-threaded and without
// random choices: the same files give the same model. Of more than 64 MiB of text, every n-th line is used.
// `key`: what the user gave `vocab` as, for messages.
std::unique_ptr<Tokenizer> train_sentencepiece(const std::vector<std::filesystem::path>& files, std::int64_t vocab,
                                               const std::string& key = "data.sentencepiece.vocab");

// The tokenizer a configuration asks for. Trains where it says so, which takes a while: one rank (or the launcher) calls
// this once and saves the result to the run directory, the others and every resume call load_tokenizer.
std::unique_ptr<Tokenizer> create_tokenizer(const Config& config);

// How much of `text` to take when it is worked through in pieces of about `most` bytes: up to the end of a line, else up to
// the end of a character, else `most`.
std::size_t piece_length(std::string_view text, std::size_t most);

// Whether a tokenizer of this kind is there: the ids of the others came from elsewhere, and stand for no text.
inline bool has_text(const std::string& kind) { return kind != "tokens" && kind != "random"; }

// Its added tokens that stand for no text, such as <|endoftext|>.
TokenSet special_tokens(const Tokenizer& tokenizer);

// Whether save() wrote a tokenizer into this directory.
bool has_tokenizer(const std::filesystem::path& directory);

// The tokenizer that save() wrote. ConfigError naming the file when there is none or it is damaged.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory);

// Tokens of the configuration's tokenizer. One that would have to be trained first is not: what it is going to have.
std::int64_t vocabulary(const Config& config);

}  // namespace plait::data
