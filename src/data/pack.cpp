#include "data/pack.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <optional>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "data/files.h"
#include "data/token_shard.h"
#include "data/token_source.h"

namespace plait::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t packed_piece_bytes = 4 * 1024 * 1024;  // encoded at a time: bounds the memory, not the result

// Cuts a stream of tokens into shards.
class ShardSequence {
 public:
  ShardSequence(fs::path out, std::int64_t shard_tokens, std::int64_t vocab)
      : out_(std::move(out)), shard_tokens_(shard_tokens), vocab_(vocab) {}

  void append(std::span<const std::int32_t> tokens) {
    while (!tokens.empty()) {
      if (!shard_) shard_.emplace(out_ / fmt::format("shard_{:06}.bin", shards_.size()), vocab_);
      const auto room = static_cast<std::size_t>(shard_tokens_ - shard_->tokens());
      const auto part = tokens.first(std::min(room, tokens.size()));
      shard_->append(part);
      tokens = tokens.subspan(part.size());
      if (shard_->tokens() == shard_tokens_) finish();
    }
  }

  void finish() {
    if (!shard_) return;
    shard_->finish();
    shard_.reset();
    shards_.push_back(out_ / fmt::format("shard_{:06}.bin", shards_.size()));
  }

  const std::vector<fs::path>& shards() const { return shards_; }

 private:
  const fs::path out_;
  const std::int64_t shard_tokens_, vocab_;
  std::optional<TokenShardWriter> shard_;
  std::vector<fs::path> shards_;
};

// Encodes on other threads and hands the tokens on in the order of the texts.
class OrderedEncoding {
 public:
  OrderedEncoding(const Tokenizer& tokenizer, int threads, std::function<void(std::span<const std::int32_t>)> take)
      : tokenizer_(tokenizer), threads_(static_cast<std::size_t>(std::max(1, threads))), take_(std::move(take)) {}

  // A piece of a text, as large as packed_piece_bytes allow: a thread is little beside it.
  void add(std::string piece, bool begins, bool ends, bool add_special_tokens) {
    if (running_.size() == threads_) take_first();
    running_.push_back(std::async(std::launch::async, [this, piece = std::move(piece), begins, ends, add_special_tokens] {
      std::vector<std::int32_t> tokens = tokenizer_.encode_piece(piece, begins);
      if (!add_special_tokens) return tokens;
      return tokenizer_.with_special_tokens(std::move(tokens), begins, ends);
    }));
  }

  void finish() {
    while (!running_.empty()) take_first();
  }

 private:
  void take_first() {
    const std::vector<std::int32_t> tokens = running_.front().get();
    running_.pop_front();
    take_(tokens);
  }

  const Tokenizer& tokenizer_;
  const std::size_t threads_;
  const std::function<void(std::span<const std::int32_t>)> take_;
  std::deque<std::future<std::vector<std::int32_t>>> running_;  // waits for them where it is given up
};

void check_files(const std::vector<MatchedFile>& files, const Tokenizer& tokenizer) {
  std::uint64_t bytes = 0;
  for (const MatchedFile& file : files) {
    const DataFile data(file.path);
    if (data.size() == 0 && !file.by_wildcard)
      throw ConfigError({{file.path.string(), "", "is empty (at byte offset 0)", "", 0}});
    check_encodable(tokenizer, data);
    bytes += data.size();
  }
  if (bytes == 0) throw ConfigError({{"GLOB", "", "the files hold no text", "", 0}});
}

void prepare_directory(const fs::path& out) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw ConfigError({{out.string(), "", "cannot be created: " + error.message(), "", 0}});
  for (const fs::directory_entry& entry : fs::directory_iterator(out)) {
    if (entry.path().extension() != ".bin") continue;
    throw ConfigError({{out.string(), "",
                        fmt::format("holds {} already: give an empty directory, so that shards of two runs do not mix",
                                    entry.path().filename().string()),
                        "", 0}});
  }
}

}  // namespace

PackResult pack(const PackOptions& options, const Tokenizer& tokenizer) {
  if (options.shard_tokens < 1 || options.shard_tokens > INT32_MAX) {
    throw ConfigError(
        {{"--shard-tokens", std::to_string(options.shard_tokens), fmt::format("must be 1 to {}", INT32_MAX), "", 0}});
  }
  // All files are looked at before anything is written, so that a bad one leaves no half-filled directory; and `out` may lie
  // where the globs look.
  const std::vector<MatchedFile> files = match_files(options.globs, "GLOB");
  check_files(files, tokenizer);
  prepare_directory(options.out);
  tokenizer.save(options.out);
  PackResult result;
  ShardSequence shards(options.out, options.shard_tokens, tokenizer.vocab());
  OrderedEncoding encoding(tokenizer, options.threads, [&](std::span<const std::int32_t> tokens) {
    shards.append(tokens);
    result.tokens += static_cast<std::int64_t>(tokens.size());
  });
  for (const MatchedFile& file : files) {
    const DataFile data(file.path);
    TextReader reader(data);
    bool begins = true;
    // Two bytes more than a piece has: what it ends at depends on them.
    for (std::string_view text; !(text = reader.peek(packed_piece_bytes + 2)).empty();) {
      const std::size_t length = tokenizer.piece_length(text, packed_piece_bytes);
      encoding.add(std::string(text.substr(0, length)), begins, length == text.size(), options.add_special_tokens);
      reader.skip(length);
      begins = false;
    }
    ++result.files;
  }
  encoding.finish();
  shards.finish();
  result.shards = shards.shards();
  return result;
}

}  // namespace plait::data
