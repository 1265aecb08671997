#include "data/pack.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <optional>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "data/document_encoder.h"
#include "data/documents.h"
#include "data/files.h"
#include "data/token_shard.h"
#include "data/token_source.h"

namespace plait::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t packed_piece_bytes = 4 * 1024 * 1024;  // encoded at a time: bounds the memory, not the result

// Cuts a stream of documents into shards.
class ShardSequence {
 public:
  // `made`: true if `out` was created for them.
  ShardSequence(fs::path out, bool made, std::int64_t shard_tokens, std::int64_t vocab)
      : out_(std::move(out)), made_(made), shard_tokens_(shard_tokens), vocab_(vocab) {}
  ShardSequence(const ShardSequence&) = delete;
  ShardSequence& operator=(const ShardSequence&) = delete;
  ~ShardSequence() {
    if (complete_) return;
    shard_.reset();
    std::error_code ignored;
    for (const fs::path& shard : shards_) {
      fs::remove(shard, ignored);
      fs::remove(document_index_path(shard), ignored);
    }
    if (made_) fs::remove(out_, ignored);
  }

  void append(const EncodedDocuments& documents) {
    documents_ += std::ssize(documents.marks.documents());
    for (std::int64_t done = 0; done < std::ssize(documents.tokens);) {
      if (!shard_) shard_.emplace(next_path(), vocab_);
      const std::int64_t count = std::min(shard_tokens_ - shard_->tokens(), std::ssize(documents.tokens) - done);
      marks_.append(documents.marks.part(done, count), shard_->tokens());
      shard_->append(std::span(documents.tokens).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)));
      tokens_ += count;
      done += count;
      if (shard_->tokens() == shard_tokens_) finish_shard();
    }
  }

  void finish() {
    finish_shard();
    complete_ = true;
  }

  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }
  const std::vector<fs::path>& shards() const { return shards_; }

 private:
  fs::path next_path() const { return out_ / fmt::format("shard_{:06}.bin", shards_.size()); }

  void finish_shard() {
    if (!shard_) return;
    const fs::path path = next_path();
    shards_.push_back(path);
    shard_->finish(marks_);
    shard_.reset();
    marks_ = {};
  }

  const fs::path out_;
  const bool made_;
  const std::int64_t shard_tokens_, vocab_;
  std::optional<TokenShardWriter> shard_;
  DocumentMarks marks_;  // of that shard
  std::int64_t documents_ = 0, tokens_ = 0;
  std::vector<fs::path> shards_;
  bool complete_ = false;
};

// Encodes on other threads and passes the documents on in the order of the texts.
class OrderedEncoding {
 public:
  OrderedEncoding(int threads, std::function<void(const EncodedDocuments&)> take)
      : threads_(static_cast<std::size_t>(std::max(1, threads))), take_(std::move(take)) {}

  // A part of the text, as large as packed_piece_bytes allows, so that the cost of a thread is small.
  void add(std::function<EncodedDocuments()> encode) {
    if (running_.size() == threads_) take_first();
    running_.push_back(std::async(std::launch::async, std::move(encode)));
  }

  void finish() {
    while (!running_.empty()) take_first();
  }

 private:
  void take_first() {
    const EncodedDocuments documents = running_.front().get();
    running_.pop_front();
    take_(documents);
  }

  const std::size_t threads_;
  const std::function<void(const EncodedDocuments&)> take_;
  std::deque<std::future<EncodedDocuments>> running_;  // waits for them on destruction
};

// Called with the number of bytes of a file read so far.
using BytesRead = std::function<void(std::uint64_t)>;

void add_text(const DataFile& file, const DocumentEncoder& encoder, OrderedEncoding& encoding, const BytesRead& told) {
  TextReader reader(file);
  bool begins = true;
  // Two bytes more than a piece has, because its end depends on them.
  for (std::string_view text; !(text = reader.peek(packed_piece_bytes + 2)).empty();) {
    const std::size_t length = encoder.tokenizer().piece_length(text, packed_piece_bytes);
    encoding.add([&encoder, piece = std::string(text.substr(0, length)), begins, ends = length == text.size()] {
      return encoder.encode_piece(piece, begins, ends);
    });
    reader.skip(length);
    begins = false;
    told(reader.file_bytes_read());
  }
}

void add_jsonl(const DataFile& file, const DocumentEncoder& encoder, OrderedEncoding& encoding, const BytesRead& told) {
  LineReader reader(file);
  std::string lines;
  std::int64_t first = 1;  // of the lines
  const auto hand_on = [&] {
    encoding.add([&encoder, path = file.path(), lines = std::move(lines), first] {
      EncodedDocuments documents;
      std::int64_t number = first;
      for (std::string_view rest = lines; !rest.empty(); ++number) {
        const std::size_t end = rest.find('\n');
        encoder.add_line(rest.substr(0, end), path, number, documents);
        rest.remove_prefix(end + 1);
      }
      return documents;
    });
    lines.clear();
    first = reader.number() + 1;
    told(reader.file_bytes_read());
  };
  while (const auto line = reader.next()) {
    lines += *line;
    lines += '\n';
    if (lines.size() >= packed_piece_bytes) hand_on();
  }
  if (!lines.empty()) hand_on();
}

[[noreturn]] void refuse_textless(const std::vector<MatchedFile>& files) {
  std::vector<ConfigProblem> problems;
  for (const MatchedFile& file : files) problems.push_back({file.path.string(), "", "holds no text", "", 0});
  throw ConfigError(first_problems(std::move(problems), "files without text"));
}

// Returns their total bytes.
std::uint64_t check_files(const std::vector<MatchedFile>& files, const Tokenizer& tokenizer) {
  std::uint64_t bytes = 0;
  for (const MatchedFile& file : files) {
    if (is_token_shard(file.path))
      throw ConfigError(
          {{file.path.string(), "", "is a token shard already, not text: give data.train the shard itself", "", 0}});
    if (is_shard_index(file.path))
      throw ConfigError({{file.path.string(), "", "is the index of a token shard, not text: leave it out", "", 0}});
    const DataFile data(file.path);
    if (data.size() == 0 && !file.by_wildcard)
      throw ConfigError({{file.path.string(), "", "is empty (at byte offset 0)", "", 0}});
    if (!is_jsonl(file.path)) check_encodable(tokenizer, data);  // a line's error names the line
    bytes += data.size();
  }
  if (bytes == 0) refuse_textless(files);
  return bytes;
}

// Returns true if it created the directory.
bool prepare_directory(const fs::path& out) {
  std::error_code error;
  const bool made = fs::create_directories(out, error);
  if (error) throw ConfigError({{out.string(), "", "cannot be created: " + error.message(), "", 0}});
  for (const fs::directory_entry& entry : fs::directory_iterator(out)) {
    if (entry.path().extension() != ".bin") continue;
    throw ConfigError({{out.string(), "",
                        fmt::format("holds {} already: give an empty directory, so that shards of two runs do not mix",
                                    entry.path().filename().string()),
                        "", 0}});
  }
  return made;
}

}  // namespace

PackResult pack(const PackOptions& options, const Tokenizer& tokenizer) {
  if (options.shard_tokens < 1 || options.shard_tokens > INT32_MAX) {
    throw ConfigError(
        {{"--shard-tokens", std::to_string(options.shard_tokens), fmt::format("must be 1 to {}", INT32_MAX), "", 0}});
  }
  // The files are checked before anything is written, since `out` may lie where the globs look.
  const DocumentEncoder encoder(options.data, tokenizer, options.add_special_tokens);
  const std::vector<MatchedFile> files = match_files(options.globs, "GLOB");
  const std::uint64_t bytes = check_files(files, tokenizer);
  PackResult result;
  ShardSequence shards(options.out, prepare_directory(options.out), options.shard_tokens, tokenizer.vocab());
  OrderedEncoding encoding(options.threads, [&](const EncodedDocuments& documents) { shards.append(documents); });
  std::uint64_t bytes_before = 0;
  for (const MatchedFile& file : files) {
    const DataFile data(file.path);
    const auto told = [&](std::uint64_t read) {
      if (options.progress)
        options.progress(static_cast<double>(bytes_before + read) / static_cast<double>(bytes), file.path.filename().string());
    };
    is_jsonl(file.path) ? add_jsonl(data, encoder, encoding, told) : add_text(data, encoder, encoding, told);
    bytes_before += data.size();
    ++result.files;
  }
  encoding.finish();
  if (shards.tokens() == 0) refuse_textless(files);
  tokenizer.save(options.out);  // last, so that nothing stays of text that turns out to be wrong
  shards.finish();
  result.documents = shards.documents();
  result.tokens = shards.tokens();
  result.shards = shards.shards();
  return result;
}

}  // namespace plait::data
