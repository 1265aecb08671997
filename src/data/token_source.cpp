#include "data/token_source.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <new>

#include "core/error.h"
#include "data/document_encoder.h"
#include "data/token_shard.h"

namespace plait::data {
namespace {

class ByteSource final : public TokenSource {
 public:
  explicit ByteSource(DataFile file) : file_(std::move(file)) {}
  std::int64_t tokens() const override { return static_cast<std::int64_t>(file_.size()); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    std::vector<std::byte> bytes(out.size());
    file_.read(static_cast<std::uint64_t>(first), bytes);
    std::ranges::transform(bytes, out.begin(), [](std::byte b) { return static_cast<std::int32_t>(b); });
  }
  void mark(std::int64_t first, std::span<const std::int32_t>, std::span<TokenMarks> marks) const override {
    if (first == 0) marks.front() |= begins_document;
    if (first + std::ssize(marks) == tokens()) marks.back() |= ends_document;
  }

 private:
  DataFile file_;
};

class EncodedSource final : public TokenSource {
 public:
  explicit EncodedSource(EncodedDocuments documents) : documents_(std::move(documents)) {}
  std::int64_t tokens() const override { return std::ssize(documents_.tokens); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    const auto from = std::span(documents_.tokens).subspan(static_cast<std::size_t>(first), out.size());
    std::ranges::copy(from, out.begin());
  }
  void mark(std::int64_t first, std::span<const std::int32_t>, std::span<TokenMarks> marks) const override {
    documents_.marks.add_to(marks, first);
    if (first + std::ssize(marks) == tokens()) marks.back() |= ends_document;
  }

 private:
  EncodedDocuments documents_;
};

class ShardSource final : public TokenSource {
 public:
  ShardSource(TokenShard shard, std::int64_t vocab, const DocumentTokenConfig& document_token)
      : shard_(std::move(shard)),
        vocab_(vocab),
        document_token_(static_cast<std::int32_t>(document_token.id)),
        mark_(document_token.place == DocumentTokenPlace::begin ? begins_document : ends_document) {}
  std::int64_t tokens() const override { return shard_.tokens(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override { shard_.read(first, out, vocab_); }
  void mark(std::int64_t first, std::span<const std::int32_t> tokens, std::span<TokenMarks> marks) const override {
    if (shard_.marks()) return shard_.marks()->add_to(marks, first);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == document_token_) marks[i] |= mark_;
    }
  }

 private:
  TokenShard shard_;
  std::int64_t vocab_;
  std::int32_t document_token_;  // negative: none
  TokenMarks mark_;
};

// The descriptors that one list of files keeps, out of those that a process may have. Samples are drawn at random, so it does
// not matter which files keep one.
constexpr std::size_t most_kept_open = 256;

std::unique_ptr<TokenSource> open_shard(const std::filesystem::path& path, const SourceOptions& options, bool keep_open) {
  const bool separate = options.data.documents == Documents::separate;
  TokenShard shard(path, separate);
  if (separate && !shard.marks() && options.data.document_token.id < 0) {
    throw ConfigError(
        {{path.string(), "",
          "does not say where its documents begin, which data.documents=separate needs: set data.document_token.id "
          "to the token between them (llm.c's shards of GPT-2 tokens: 50256)",
          "", 0}});
  }
  if (!keep_open) shard.let_go();
  // A shard among texts was made with this tokenizer, so it must stay within that tokenizer's vocabulary.
  const bool among_texts = options.tokenizer.kind() != "tokens";
  return std::make_unique<ShardSource>(std::move(shard), among_texts ? options.tokenizer.vocab() : options.vocab,
                                       options.data.document_token);
}

// A file that is no shard may be a text, given in the belief that the model brought its tokenizer.
std::unique_ptr<TokenSource> open_ids(const std::filesystem::path& path, const SourceOptions& options, bool keep_open) {
  try {
    return open_shard(path, options, keep_open);
  } catch (const ConfigError& error) {
    std::vector<ConfigProblem> problems = error.problems();
    if (problems.empty() || options.data.no_tokenizer.empty() || is_token_shard(path)) throw;
    problems.front().rule += " (" + options.data.no_tokenizer + ")";
    throw ConfigError(std::move(problems));
  }
}

// Encodes the lines of a file, or the whole file as one document.
EncodedDocuments encode_file(const DataFile& file, const DocumentEncoder& encoder) {
  if (!is_jsonl(file.path())) {
    check_encodable(encoder.tokenizer(), file);
    return encoder.encode_piece(whole_text(file), true, true);
  }
  EncodedDocuments documents;
  LineReader lines(file);
  while (const auto line = lines.next()) encoder.add_line(*line, file.path(), lines.number(), documents);
  return documents;
}

// nullptr: a wildcard matched an empty text, or an index or the tokenizer of shards.
std::unique_ptr<TokenSource> open_source(const MatchedFile& file, const SourceOptions& options, const DocumentEncoder& encoder,
                                         bool keep_open) {
  if (is_shard_index(file.path)) {
    if (file.by_wildcard) return nullptr;  // it is read with the .bin next to it
    throw ConfigError({{file.path.string(), "", "is the index of token data: give the .bin beside it", "", 0}});
  }
  if (file.by_wildcard && is_packed_tokenizer(file.path)) return nullptr;
  if (options.tokenizer.kind() == "tokens") return open_ids(file.path, options, keep_open);
  if (is_token_shard(file.path)) return open_shard(file.path, options, keep_open);
  DataFile data(file.path);
  const bool as_it_lies = options.tokenizer.kind() == "bytes" && !is_jsonl(file.path) && !is_zstd(file.path);
  if (as_it_lies && data.size() > 0) {
    refuse_compressed(data);
    if (!keep_open) data.let_go();
    return std::make_unique<ByteSource>(std::move(data));
  }
  EncodedDocuments documents;
  try {
    documents = encode_file(data, encoder);
  } catch (const std::bad_alloc&) {  // not a ConfigError: other files would fail too
    throw Error(file.path.string() +
                ": out of memory: it does not fit in this host's memory as tokens; pack it first (plait data pack) and use the "
                "shards, which are read a little at a time");
  }
  if (!documents.tokens.empty()) return std::make_unique<EncodedSource>(std::move(documents));
  if (file.by_wildcard) return nullptr;
  throw ConfigError({{file.path.string(), "", "is empty (at byte offset 0)", "", 0}});
}

}  // namespace

std::vector<std::unique_ptr<TokenSource>> open_sources(const std::vector<std::string>& globs, const std::string& key,
                                                       const SourceOptions& options) {
  const std::vector<MatchedFile> files = match_files(globs, key);
  const DocumentEncoder encoder(options.data, options.tokenizer);
  std::vector<std::unique_ptr<TokenSource>> sources;
  std::vector<ConfigProblem> problems;
  for (const MatchedFile& file : files) {
    try {
      const bool keep_open = sources.size() < most_kept_open;
      if (auto source = open_source(file, options, encoder, keep_open)) sources.push_back(std::move(source));
    } catch (const ConfigError& error) {
      if (error.problems().empty()) throw;
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  if (problems.empty() && sources.empty()) {
    for (const MatchedFile& file : files) problems.push_back({file.path.string(), "", "is empty (at byte offset 0)", "", 0});
  }
  if (!problems.empty()) throw ConfigError(first_problems(std::move(problems), "files that cannot be used"));
  return sources;
}

void check_encodable(const Tokenizer& tokenizer, const DataFile& file) {
  const auto offset = tokenizer.takes_any_bytes() ? std::nullopt : find_invalid_utf8(file);
  if (!offset) return;
  throw ConfigError({{file.path().string(), "",
                      fmt::format("is not UTF-8 text (at byte offset {}): tokenizer {} cannot encode it; bytes can", *offset,
                                  tokenizer.kind()),
                      "", 0}});
}

void Split::add(const TokenSource& source, std::int64_t first, std::int64_t count) {
  if (count == 0) return;
  parts_.push_back({&source, first, tokens_, at_end_ && first == 0});
  tokens_ += count;
  at_end_ = first + count == source.tokens();
}

void Split::read(std::int64_t first, std::span<std::int32_t> tokens, std::span<TokenMarks> marks) const {
  require(first >= 0 && first + std::ssize(tokens) <= tokens_ && marks.size() == tokens.size(),
          "Split::read: range outside the split");
  auto part = std::ranges::upper_bound(parts_, first, {}, &SplitPart::start) - 1;
  while (!tokens.empty()) {
    const std::int64_t end = part + 1 == parts_.end() ? tokens_ : (part + 1)->start;
    const std::size_t count = std::min(tokens.size(), static_cast<std::size_t>(end - first));
    const std::int64_t in_source = part->first + (first - part->start);
    part->source->read(in_source, tokens.first(count));
    part->source->mark(in_source, tokens.first(count), marks.first(count));
    if (first == part->start && !part->goes_on) marks.front() |= begins_document;
    tokens = tokens.subspan(count);
    marks = marks.subspan(count);
    first += static_cast<std::int64_t>(count);
    ++part;
  }
}

void read_sample(const Split& split, std::int64_t first, Documents documents, const SampleSpans& out) {
  const std::size_t length = out.tokens.size();
  std::vector<std::int32_t> all(length + 1);  // in one read
  std::vector<TokenMarks> marks(length + 1);
  split.read(first, all, marks);
  const auto begins = [&](std::size_t i) {
    return documents == Documents::separate && i > 0 &&
           ((marks[i] & begins_document) != 0 || (marks[i - 1] & ends_document) != 0);
  };
  std::copy(all.begin(), all.end() - 1, out.tokens.begin());
  for (std::size_t i = 0; i < length; ++i)
    out.targets[i] = (marks[i + 1] & masked) != 0 || begins(i + 1) ? no_target : all[i + 1];
  std::int32_t start = 0;
  for (std::size_t i = 0; i < out.starts.size(); ++i) {
    if (begins(i)) start = static_cast<std::int32_t>(i);
    out.starts[i] = start;
  }
}

}  // namespace plait::data
