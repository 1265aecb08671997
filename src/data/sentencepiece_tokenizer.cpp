// The SentencePiece tokenizer (Kudo and Richardson 2018): training, encoding, decoding.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/file.h"
#include "core/message.h"
#include "core/utf8.h"
#include "data/document_encoder.h"
#include "data/files.h"
#include "data/tokenizer.h"

namespace plait::data {
namespace {

constexpr std::size_t encoded_piece_bytes = 64 * 1024;    // encoded at a time: the Viterbi lattice is many times the text
constexpr std::size_t sentence_bytes = 4096;              // longest stretch that training treats as one sentence
constexpr std::size_t training_bytes = 64 * 1024 * 1024;  // of text; more changes little and takes memory and minutes
constexpr std::uint64_t most_model_bytes = 256 * 1024 * 1024;

// Reads SentencePiece's description of the pieces of a text: message SentencePieceText of its sentencepiece.proto, for which
// Debian has no header.
class PieceReader {
 public:
  explicit PieceReader(std::string_view message) : rest_(message) {}

  struct Piece {
    std::int32_t id = 0;
    std::string_view surface;  // its part of the text
    std::size_t end = 0;       // of that part in the text
  };

  // The next piece; false after the last. A missing field leaves its member of `out` unchanged.
  bool next(Piece& out) {
    while (!rest_.empty()) {
      const std::uint64_t key = varint();
      if (key != (2 << 3 | 2)) {  // not `pieces`
        skip(key & 7);
        continue;
      }
      PieceReader piece(bytes(varint()));
      while (!piece.rest_.empty()) {
        const std::uint64_t field = piece.varint();
        if (field == (2 << 3 | 0)) {
          out.id = static_cast<std::int32_t>(piece.varint());
        } else if (field == (3 << 3 | 2)) {
          out.surface = piece.bytes(piece.varint());
        } else if (field == (5 << 3 | 0)) {
          out.end = static_cast<std::size_t>(piece.varint());
        } else {
          piece.skip(field & 7);
        }
      }
      return true;
    }
    return false;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes(1).front());
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string_view bytes(std::uint64_t count) {
    require(count <= rest_.size(), "SentencePiece's message is cut off");
    const std::string_view part = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(part.size());
    return part;
  }
  void skip(std::uint64_t wire_type) {
    switch (wire_type) {
      case 0: varint(); return;
      case 1: bytes(8); return;
      case 2: bytes(varint()); return;
      case 5: bytes(4); return;
      default: throw InternalError("SentencePiece's message has a field of a type that is not known");
    }
  }

  std::string_view rest_;
};

// The text after the condition in "./src/trainer_interface.cc(660) [condition] What is wrong.", a SentencePiece message.
std::string_view users_part(std::string_view message) {
  const auto end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `origin` names the model in messages.
  SentencePieceTokenizer(std::string model, const std::string& origin) : model_(std::move(model)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok()) {
      const std::string_view why = users_part(status.message());
      throw ConfigError({{origin, "", fmt::format("is not a SentencePiece model{}{}", why.empty() ? "" : ": ", why), "", 0}});
    }
    std::vector<AddedToken> control;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id) && !processor_.IdToPiece(id).empty())
        control.push_back({.content = processor_.IdToPiece(id), .id = id, .special = true});
    }
    control_.emplace(std::move(control));
    cut_ = cut_of_model();
    std::vector<std::string> pieces;
    puts_space_in_front_ = processor_.Encode("a", &pieces).ok() && !pieces.empty() && pieces.front().starts_with(visible_space);
    const std::vector<int> spaced = ids_of("a b");
    for (const std::string_view space : {" ", "\n", "\t", "\r", "\u00a0", "\u3000"}) {
      if (ids_of(fmt::format("a{}b", space)) == spaced) spaces_.push_back(space);
    }
  }

  bool has_piece(const AddedToken& token) const {
    return token.id < processor_.GetPieceSize() && processor_.IdToPiece(token.id) == token.content;
  }
  std::string kind() const override { return "sentencepiece"; }
  std::int64_t vocab() const override { return processor_.GetPieceSize(); }

  std::vector<std::int32_t> encode_piece(std::string_view text, bool begins) const override {
    if (const auto offset = first_invalid_utf8(text)) {
      throw ConfigError(
          fmt::format("text is not UTF-8 at byte offset {}: the sentencepiece tokenizer cannot encode it", *offset));
    }
    std::vector<std::int32_t> tokens;
    each_part(text, begins, [&](const Part& part, std::size_t) {
      const std::vector<int> ids = ids_of(part);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    });
    return tokens;
  }

  std::size_t piece_length(std::string_view text, std::size_t most) const override {
    if (text.size() <= most) return text.size();
    const std::size_t cut = most > 2 * edge_context ? last_cut(text.substr(0, most)) : 0;
    return cut > 0 ? cut : data::piece_length(text, most);
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    std::vector<int> ids;
    const auto flush = [&] {
      text += text_of(ids);
      ids.clear();
    };
    for (const std::int32_t token : tokens) {
      if (token >= 0 && token < processor_.GetPieceSize()) {
        ids.push_back(token);
      } else {
        flush();
        text += fmt::format(" <{}>", token);
      }
    }
    flush();
    return text;
  }

  std::optional<std::int32_t> unknown() const override {
    const int id = processor_.unk_id();
    return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
  }

  std::string definition() const override { return model_; }
  void save(const std::filesystem::path& directory) const override {
    write_text_file(directory / tokenizer_model, model_);
    save_description(*this, directory);  // last: with it, the tokenizer is complete
  }

  // Its control pieces, such as </s>, to which no text is encoded.
  std::vector<AddedTokenName> added_tokens() const override {
    std::vector<AddedTokenName> names;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id)) names.push_back({id, true});
    }
    return names;
  }

 protected:
  std::vector<TextSection> sections(std::string_view text, const AddedTokenFilter& counts) const override {
    return control_->sections(text, counts);
  }

  void encode_section(std::string_view text, bool, std::vector<std::int32_t>& tokens,
                      std::vector<std::size_t>& ends) const override {
    each_part(text, true, [&](const Part& part, std::size_t begin) {
      const std::string message = part.by->EncodeAsSerializedProto(part.text);
      PieceReader pieces(message);
      for (PieceReader::Piece piece; pieces.next(piece);) {
        tokens.push_back(piece.id);
        ends.push_back(begin + std::min(piece.end, part.text.size()));
      }
    });
  }

 private:
  using Processor = sentencepiece::SentencePieceProcessor;
  static constexpr std::size_t edge_context = 128;  // bytes before and after a cut that show if a token reaches across
  static constexpr int most_tries = 64;             // candidate cuts per kind
  static constexpr std::string_view visible_space = "\u2581";  // stands for a space in pieces

  // A part of a text, and the processor that encodes it.
  struct Part {
    std::string_view text;
    const Processor* by;
  };

  // Where two words are separated at a space, the second part has to be encoded: with the space, or without it, since the model
  // puts one before each text (add_dummy_prefix). `anywhere`: both give the tokens of the whole.
  enum class Cut { before_space, behind_space, anywhere };

  Cut cut_of_model() const {
    const auto joined = [this](std::string_view first, std::string_view second) {
      std::vector<int> ids = ids_of(first);
      const std::vector<int> more = ids_of(second);
      ids.insert(ids.end(), more.begin(), more.end());
      return ids;
    };
    const std::vector<int> whole = ids_of("a b");
    if (whole == joined("a", " b")) return Cut::before_space;
    return whole == joined("a", "b") ? Cut::behind_space : Cut::anywhere;
  }

  // The length in bytes of the space that a text begins with; 0 if there is none.
  std::size_t space_length(std::string_view text) const {
    const auto found = std::ranges::find_if(spaces_, [&](std::string_view space) { return text.starts_with(space); });
    return found == spaces_.end() ? 0 : found->size();
  }

  // A part that follows another one; the model's dummy space may only stand for a space that is in the text.
  Part later_part(std::string_view text) const {
    const std::size_t space = space_length(text);
    if (cut_ == Cut::before_space && space > 0) return {text, &processor_};
    const std::string_view behind = text.substr(space);
    if (cut_ == Cut::behind_space && space > 0 && !behind.empty() && space_length(behind) == 0) return {behind, &processor_};
    return {text, puts_space_in_front_ ? &without_space() : &processor_};
  }

  // True if the tokens around a place are the tokens before it followed by the tokens after it.
  bool is_edge(std::string_view text, std::size_t at) const {
    std::size_t begin = at - std::min(at, edge_context);
    while (begin < at && is_utf8_continuation(text[begin])) ++begin;
    std::string_view around = text.substr(begin, at - begin + edge_context);
    around.remove_suffix(unfinished_utf8(around));
    std::vector<int> ids = ids_of(around.substr(0, at - begin));
    const std::vector<int> more = ids_of(later_part(around.substr(at - begin)));
    ids.insert(ids.end(), more.begin(), more.end());
    return ids == ids_of(around);
  }

  // The last place at which a text may be cut, preferably at spaces; 0 if none is found among those that are tried.
  std::size_t last_cut(std::string_view text) const {
    const std::size_t last = text.size() - edge_context;
    int tries = 0;
    for (std::size_t at = last; at > 0 && tries < most_tries; --at) {
      if (space_length(text.substr(at)) > 0 && (++tries, is_edge(text, at))) return at;
    }
    tries = 0;
    for (std::size_t at = last; at > 0 && tries < most_tries; --at) {
      if (!is_utf8_continuation(text[at]) && (++tries, is_edge(text, at))) return at;
    }
    return 0;
  }

  // Calls `encode` with the parts of a text, or of a later piece of one, and with each part's position in `text`.
  template <typename Encode>
  void each_part(std::string_view text, bool begins, const Encode& encode) const {
    for (std::size_t done = 0; done < text.size(); begins = false) {
      const std::size_t next = done + piece_length(text.substr(done), encoded_piece_bytes);
      const std::string_view whole = text.substr(done, next - done);
      const Part part = begins ? Part{whole, &processor_} : later_part(whole);
      encode(part, next - part.text.size());
      done = next;
    }
  }

  // The model without its dummy space before each text; the model itself if it cannot be changed so.
  const Processor& without_space() const {
    std::call_once(without_space_made_, [this] {
      auto made = std::make_unique<Processor>();
      // Protobuf merges a message that comes twice: normalizer_spec { add_dummy_prefix: false }.
      if (made->LoadFromSerializedProto(model_ + std::string("\x1a\x02\x18\x00", 4)).ok()) without_space_ = std::move(made);
    });
    return without_space_ ? *without_space_ : processor_;
  }

  // Keeps the bytes of byte fallback. The library's own text has U+FFFD for bytes that form no character, so a text that ends
  // within one would not be a prefix of the whole.
  std::string text_of(const std::vector<int>& ids) const {
    std::string text;
    if (std::ranges::none_of(ids, [&](int id) { return processor_.IsByte(id); })) {
      if (!ids.empty() && !processor_.Decode(ids, &text).ok()) text.clear();
      return text;
    }
    const std::string message = processor_.DecodeIdsAsSerializedProto(ids);
    PieceReader pieces(message);
    for (const int id : ids) {
      PieceReader::Piece piece;
      require(pieces.next(piece), "SentencePiece decodes fewer pieces than it was given");
      if (processor_.IsByte(id)) {
        text += static_cast<char>(std::stoi(processor_.IdToPiece(id).substr(3, 2), nullptr, 16));  // "<0xE4>"
      } else {
        text += piece.surface;
      }
    }
    return text;
  }

  std::vector<int> ids_of(std::string_view text) const { return ids_of(Part{text, &processor_}); }
  std::vector<int> ids_of(const Part& part) const {
    std::vector<int> ids;
    const auto status = part.by->Encode(part.text, &ids);
    if (!status.ok()) throw ConfigError(fmt::format("SentencePiece cannot encode the text: {}", status.message()));
    return ids;
  }

  std::string model_;
  std::optional<AddedTokenFinder> control_;
  Processor processor_;
  Cut cut_ = Cut::anywhere;
  bool puts_space_in_front_ = false;
  std::vector<std::string_view> spaces_;  // characters that the model treats as spaces
  mutable std::once_flag without_space_made_;
  mutable std::unique_ptr<Processor> without_space_;
};

// Every `stride`-th line of the files, without its line break, which byte fallback encodes.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines(const std::vector<DataFile>& files, std::size_t stride) : files_(files), stride_(stride) { Next(); }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    do {
      read_line();
    } while (!done_ && (line_.empty() || number_++ % stride_ != 0));
  }

 private:
  void read_line() {
    std::string_view rest = text();
    while (rest.empty() && next_file_ < files_.size()) {
      reader_.emplace(files_[next_file_++]);
      rest = text();
    }
    done_ = rest.empty();
    if (done_) return;
    const std::size_t newline = rest.find('\n');
    const std::size_t end = newline == std::string_view::npos ? rest.size() : newline;
    const std::size_t length = piece_length(rest.substr(0, end), sentence_bytes);
    line_ = rest.substr(0, length);
    reader_->skip(length == newline ? length + 1 : length);
  }

  // As much of the open file as decides where the next piece ends.
  std::string_view text() { return reader_ ? reader_->peek(sentence_bytes + 1) : std::string_view(); }

  const std::vector<DataFile>& files_;
  const std::size_t stride_;
  std::size_t next_file_ = 0, number_ = 0;
  std::optional<TextReader> reader_;
  std::string line_;
  bool done_ = false;
};

std::string model_text(const std::filesystem::path& path) {
  const DataFile file(path);
  if (file.size() > most_model_bytes) {
    throw ConfigError(
        {{path.string(), "", fmt::format("has {} bytes, must be at most {}", file.size(), most_model_bytes), "", 0}});
  }
  return file.text();
}

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model, const std::vector<AddedToken>& expected) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(model_text(model), model.string());
  for (const AddedToken& token : expected) {
    if (tokenizer->has_piece(token)) continue;
    throw ConfigError(
        {{model.string(), "",
          fmt::format("has no '{}' of id {}, which tokenizer.json adds", printable(token.content, 60), token.id), "", 0}});
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> train_sentencepiece(const std::vector<std::filesystem::path>& files, std::int64_t vocab,
                                               const std::string& key) {
  std::vector<DataFile> texts;
  std::vector<ConfigProblem> problems;
  std::uint64_t bytes = 0;
  for (const std::filesystem::path& path : files) {
    if (is_jsonl(path)) {
      problems.push_back({path.string(), "",
                          "is JSONL: train SentencePiece on text, and give the model that comes of it "
                          "(data.sentencepiece.model)",
                          "", 0});
      continue;
    }
    texts.emplace_back(path);
    bytes += texts.back().size();
    const auto offset = find_invalid_utf8(texts.back());
    texts.back().let_go();
    if (offset) {
      problems.push_back({path.string(), "",
                          fmt::format("is not UTF-8 text at byte offset {}: SentencePiece cannot learn from it", *offset), "",
                          0});
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  if (bytes == 0) throw ConfigError({{"data.train", "", "holds no text to train a SentencePiece model on", "", 0}});

  Lines lines(texts, (bytes + training_bytes - 1) / training_bytes);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", "unigram"},
       {"vocab_size", std::to_string(vocab)},
       {"num_threads", "1"},  // the EM sums are in another order with more
       // Decoding restores the input: nothing is normalised, no space is added or dropped, and bytes cover everything else.
       {"normalization_rule_name", "identity"},
       {"remove_extra_whitespaces", "false"},
       {"add_dummy_prefix", "false"},
       {"byte_fallback", "true"},
       {"allow_whitespace_only_pieces", "true"},
       {"max_sentence_length", std::to_string(2 * sentence_bytes)},
       {"unk_id", "0"},
       {"bos_id", "-1"},
       {"eos_id", "-1"},
       {"minloglevel", "2"}},
      &lines, &model);
  if (!status.ok()) {
    const std::string_view why = users_part(status.message());
    // Drops ". Increase vocab_size or decrease ...", which names an option that plait does not have.
    const auto advice = why.find(". Increase vocab_size");
    throw ConfigError({{key, std::to_string(vocab),
                        fmt::format("SentencePiece cannot train a model of that size on this text: {}{}", why.substr(0, advice),
                                    advice == std::string_view::npos ? "" : "; take at least the second number"),
                        "", 0}});
  }
  return std::make_unique<SentencePieceTokenizer>(std::move(model), "the model trained on data.train");
}

}  // namespace plait::data
