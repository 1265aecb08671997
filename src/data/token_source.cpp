#include "data/token_source.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "data/files.h"
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

 private:
  DataFile file_;
};

class EncodedSource final : public TokenSource {
 public:
  explicit EncodedSource(std::vector<std::int32_t> tokens) : tokens_(std::move(tokens)) {}
  std::int64_t tokens() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    const auto from = std::span(tokens_).subspan(static_cast<std::size_t>(first), out.size());
    std::ranges::copy(from, out.begin());
  }

 private:
  std::vector<std::int32_t> tokens_;
};

class ShardSource final : public TokenSource {
 public:
  ShardSource(TokenShard shard, std::int64_t vocab) : shard_(std::move(shard)), vocab_(vocab) {}
  std::int64_t tokens() const override { return shard_.tokens(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override { shard_.read(first, out, vocab_); }

 private:
  TokenShard shard_;
  std::int64_t vocab_;
};

// Descriptors that one list of files keeps, of those that a process may have. Samples are drawn at random, so that it does
// not matter which files have one.
constexpr std::size_t most_kept_open = 256;

// nullptr: an empty text or an index that a wildcard matched.
std::unique_ptr<TokenSource> open_source(const MatchedFile& file, const Tokenizer& tokenizer, std::int64_t vocab,
                                         bool keep_open) {
  if (file.path.extension() == ".idx" && is_megatron_index(file.path)) {
    if (file.by_wildcard) return nullptr;  // it is read with the .bin beside it
    throw ConfigError({{file.path.string(), "", "is the index of token data: give the .bin beside it", "", 0}});
  }
  const bool only_shards = tokenizer.kind() == "tokens";
  if (only_shards || is_token_shard(file.path)) {
    TokenShard shard(file.path);
    if (!keep_open) shard.let_go();
    // A shard among texts was made with this tokenizer, so that it must stay within that one's vocabulary.
    return std::make_unique<ShardSource>(std::move(shard), only_shards ? vocab : tokenizer.vocab());
  }
  DataFile data(file.path);
  if (data.size() == 0) {
    if (file.by_wildcard) return nullptr;
    throw ConfigError({{file.path.string(), "", "is empty (at byte offset 0)", "", 0}});
  }
  if (tokenizer.kind() == "bytes") {
    if (!keep_open) data.let_go();
    return std::make_unique<ByteSource>(std::move(data));
  }
  check_encodable(tokenizer, data);
  return std::make_unique<EncodedSource>(tokenizer.encode(data.text()));
}

}  // namespace

std::vector<std::unique_ptr<TokenSource>> open_sources(const std::vector<std::string>& globs, const std::string& key,
                                                       const Tokenizer& tokenizer, std::int64_t vocab) {
  const std::vector<MatchedFile> files = match_files(globs, key);
  std::vector<std::unique_ptr<TokenSource>> sources;
  std::vector<ConfigProblem> problems;
  for (const MatchedFile& file : files) {
    try {
      const bool keep_open = sources.size() < most_kept_open;
      if (auto source = open_source(file, tokenizer, vocab, keep_open)) sources.push_back(std::move(source));
    } catch (const ConfigError& error) {
      if (error.problems().empty()) throw;
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  if (problems.empty() && sources.empty()) {
    for (const MatchedFile& file : files) problems.push_back({file.path.string(), "", "is empty (at byte offset 0)", "", 0});
  }
  if (!problems.empty()) throw ConfigError(problems);
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

}  // namespace plait::data
