#include "data/token_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "data/documents.h"

namespace plait::data {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "tokens are read as they are on disk");

constexpr std::size_t header_words = 256;
constexpr std::size_t header_bytes = header_words * sizeof(std::int32_t);
constexpr std::int32_t magic_uint16 = 20240520, version_uint16 = 1;
constexpr std::int32_t magic_uint32 = 20240801, version_uint32 = 7;
// Words 3 and 4 of a header: there is an index of documents, and it masks tokens.
constexpr std::int32_t shard_index_magic = 0x74696c70;  // "plit"

using Header = std::array<std::int32_t, header_words>;

[[noreturn]] void refuse(const std::filesystem::path& path, std::size_t offset, const std::string& why) {
  throw ConfigError({{path.string(), "", fmt::format("{} (at byte offset {})", why, offset), "", 0}});
}

// The error for a file named NAME.bin that has an index next to it, with its remedy; "" without an index.
std::string again_by(const fs::path& path) {
  std::error_code ignored;
  if (const fs::path index = megatron_index_path(path); fs::exists(index, ignored)) {
    return fmt::format(": {} beside it {}; copy both anew", index.filename().string(),
                       is_megatron_index(index) ? "says that it holds tokens of Megatron-LM"
                                                : "is damaged, since an index of Megatron-LM begins with MMIDIDX");
  }
  if (const fs::path index = document_index_path(path); fs::exists(index, ignored)) {
    return fmt::format(": by {} beside it plait packed it; copy it anew, or pack it again (plait data pack)",
                       index.filename().string());
  }
  return "";
}

bool is_named_raw(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name == "train.bin" || name == "val.bin" || name.ends_with(".u16.bin");
}

std::int32_t magic_of(const DataFile& file) {
  std::int32_t magic = 0;
  if (file.size() >= sizeof magic) file.read(0, std::as_writable_bytes(std::span(&magic, 1)));
  return magic;
}

// Copies tokens as long as they are in the vocabulary; returns their number.
template <typename Stored>
std::size_t widen(const std::byte* from, std::span<std::int32_t> out, std::int64_t vocab, std::int64_t& refused) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    const auto value = static_cast<std::int64_t>(token);
    if (value < 0 || value >= vocab) {
      refused = value;
      return i;
    }
    out[i] = static_cast<std::int32_t>(value);
  }
  return out.size();
}

std::size_t widen(TokenType type, const std::byte* from, std::span<std::int32_t> out, std::int64_t vocab,
                  std::int64_t& refused) {
  switch (type) {
    case TokenType::u8: return widen<std::uint8_t>(from, out, vocab, refused);
    case TokenType::i8: return widen<std::int8_t>(from, out, vocab, refused);
    case TokenType::i16: return widen<std::int16_t>(from, out, vocab, refused);
    case TokenType::u16: return widen<std::uint16_t>(from, out, vocab, refused);
    case TokenType::i32: return widen<std::int32_t>(from, out, vocab, refused);
    case TokenType::u32: return widen<std::uint32_t>(from, out, vocab, refused);
    case TokenType::i64: break;
  }
  return widen<std::int64_t>(from, out, vocab, refused);
}

}  // namespace

TokenShard::TokenShard(const std::filesystem::path& path, bool documents) : file_(path) {
  const std::uint64_t bytes = file_.size();
  if (bytes == 0) refuse(path, 0, "is empty" + again_by(path));
  if (const std::filesystem::path index_path = megatron_index_path(path); is_megatron_index(index_path)) {
    MegatronIndex index = read_megatron_index(index_path, bytes);
    if (documents && !index.marks.documents().empty()) marks_ = std::move(index.marks);
    format_ = ShardFormat::megatron;
    type_ = index.type;
    tokens_ = index.tokens;
    return;
  }
  const std::int32_t magic = magic_of(file_);
  if (magic != magic_uint16 && magic != magic_uint32) {
    if (const std::string again = again_by(path); !again.empty())
      refuse(path, 0, fmt::format("is damaged: it begins with {}, which no token shard does{}", magic, again));
    if (!is_named_raw(path)) {
      refuse(path, 0,
             fmt::format("is not a token shard: wrong magic number {}, must be {} (uint16) or {} (uint32); raw uint16 files "
                         "are named train.bin, val.bin or *.u16.bin, and those of Megatron-LM have their .idx beside them",
                         magic, magic_uint16, magic_uint32));
    }
    if (bytes % 2 != 0) refuse(path, bytes - 1, "is truncated: an odd number of bytes in a file of uint16 tokens");
    format_ = ShardFormat::raw_uint16;
    tokens_ = static_cast<std::int64_t>(bytes / 2);
    return;
  }
  if (bytes < header_bytes) refuse(path, bytes, fmt::format("is truncated: the header has {} bytes", header_bytes));
  Header header;
  file_.read(0, std::as_writable_bytes(std::span(header)));
  const bool wide = magic == magic_uint32;
  const std::int32_t version = wide ? version_uint32 : version_uint16;
  if (header[1] != version)
    refuse(path, 4, fmt::format("has version {}, must be {} for magic number {}", header[1], version, magic));
  format_ = wide ? ShardFormat::uint32 : ShardFormat::uint16;
  type_ = wide ? TokenType::u32 : TokenType::u16;
  first_offset_ = header_bytes;
  tokens_ = header[2];
  if (tokens_ <= 0) refuse(path, 8, fmt::format("has a header that says {} tokens, must be at least 1", tokens_));
  const std::size_t expected = header_bytes + static_cast<std::size_t>(tokens_) * size_of(type_);
  if (bytes != expected) {
    refuse(path, std::min<std::uint64_t>(bytes, expected),
           fmt::format("{}: the header says {} tokens, {} bytes in all, the file has {}",
                       bytes < expected ? "is truncated" : "is longer than its header says", tokens_, expected, bytes));
  }
  if (header[3] != shard_index_magic || (!documents && header[4] == 0)) return;
  const std::filesystem::path index_path = document_index_path(path);
  std::error_code ignored;
  if (!std::filesystem::exists(index_path, ignored)) {
    refuse(path, 12,
           fmt::format("was packed with {}, which says where documents begin and what is learned, and is not there: "
                       "copy it beside the shard",
                       index_path.filename().string()));
  }
  marks_ = read_document_index(index_path, tokens_);
}

void TokenShard::read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab) const {
  require(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tokens_, "TokenShard::read: range outside the shard");
  const std::size_t width = size_of(type_);
  const std::size_t offset = first_offset_ + static_cast<std::size_t>(first) * width;
  std::vector<std::byte> bytes(out.size() * width);
  file_.read(offset, bytes);
  std::int64_t refused = 0;
  const std::size_t good = widen(type_, bytes.data(), out, vocab, refused);
  if (good < out.size())
    refuse(file_.path(), offset + good * width, fmt::format("holds token {}, outside the vocabulary of {}", refused, vocab));
}

bool is_token_shard(const std::filesystem::path& path) {
  if (path.extension() != ".bin") return false;
  const std::int32_t magic = magic_of(DataFile(path));
  return magic == magic_uint16 || magic == magic_uint32 || is_named_raw(path) || !again_by(path).empty();
}

bool is_shard_index(const std::filesystem::path& path) {
  const bool megatron = path.extension() == ".idx";
  if (!megatron && path.extension() != ".documents") return false;
  std::error_code ignored;
  const fs::path shard = fs::path(path).replace_extension(".bin");
  const bool beside = fs::exists(shard, ignored);
  if (megatron ? !beside && !is_megatron_index(path) : !is_document_index(path)) return false;
  if (beside) return true;
  throw ConfigError({{path.string(), "",
                      fmt::format("is the index of {}, which is not beside it: copy it there, or take the index away",
                                  shard.filename().string()),
                      "", 0}});
}

bool is_packed_tokenizer(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (name != "tokenizer.json" && name != "tokenizer.model") return false;
  std::error_code failed;
  for (fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() == ".documents" && is_document_index(entry->path())) return true;
  }
  return false;
}

TokenShardWriter::TokenShardWriter(std::filesystem::path path, std::int64_t vocab)
    : path_(std::move(path)), temporary_(path_.string() + ".partial"), file_(File::create(temporary_)), wide_(vocab > 65536) {
  const Header header{};
  file_.write_at(0, header.data(), header_bytes);
}

TokenShardWriter::~TokenShardWriter() {
  std::error_code ignored;
  if (!finished_) std::filesystem::remove(temporary_, ignored);
}

void TokenShardWriter::append(std::span<const std::int32_t> tokens) {
  // The header counts in int32.
  require(tokens_ + static_cast<std::int64_t>(tokens.size()) <= INT32_MAX,
          "TokenShardWriter: a shard holds at most 2^31 - 1 tokens");
  const std::size_t width = wide_ ? 4 : 2;
  const std::uint64_t offset = header_bytes + static_cast<std::uint64_t>(tokens_) * width;
  if (wide_) {
    file_.write_at(offset, tokens.data(), tokens.size_bytes());
  } else {
    const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    file_.write_at(offset, narrow.data(), narrow.size() * width);
  }
  tokens_ += static_cast<std::int64_t>(tokens.size());
}

void TokenShardWriter::finish() { finish(0, 0); }

void TokenShardWriter::finish(const DocumentMarks& marks) {
  write_document_index(document_index_path(path_), tokens_, marks);
  finish(shard_index_magic, marks.masked_runs().empty() ? 0 : 1);
}

void TokenShardWriter::finish(std::int32_t index, std::int32_t masked) {
  Header header{};
  header[0] = wide_ ? magic_uint32 : magic_uint16;
  header[1] = wide_ ? version_uint32 : version_uint16;
  header[2] = static_cast<std::int32_t>(tokens_);
  header[3] = index;
  header[4] = masked;
  file_.write_at(0, header.data(), header_bytes);
  file_.sync();
  file_.close();
  rename_path(temporary_, path_);
  finished_ = true;
  sync_directory(path_.parent_path());
}

}  // namespace plait::data
