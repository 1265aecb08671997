#include "data/megatron_index.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "data/files.h"

namespace plait::data {
namespace {

constexpr std::string_view index_magic("MMIDIDX\0\0", 9);
constexpr std::uint64_t index_header_bytes = 34;
constexpr std::size_t elements_at_once = 1 << 16;

[[noreturn]] void refuse_index(const DataFile& file, std::uint64_t offset, const std::string& why) {
  throw ConfigError({{file.path().string(), "", fmt::format("{} (at byte offset {})", why, offset), "", 0}});
}

template <typename T>
T number_at(const DataFile& file, std::uint64_t offset) {
  T value{};
  file.read(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

// Reads an array of the file from beginning to end.
template <typename T>
class IndexArray {
 public:
  IndexArray(const DataFile& file, std::uint64_t offset, std::uint64_t count) : file_(file), offset_(offset), count_(count) {}
  std::uint64_t offset() const { return offset_ + (next_ - 1) * sizeof(T); }  // of the last value of next()
  T next() {
    if (at_ == block_.size()) {
      block_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(elements_at_once, count_ - next_)));
      file_.read(offset_ + next_ * sizeof(T), std::as_writable_bytes(std::span(block_)));
      at_ = 0;
    }
    ++next_;
    return block_[at_++];
  }

 private:
  const DataFile& file_;
  const std::uint64_t offset_, count_;
  std::uint64_t next_ = 0;
  std::vector<T> block_;
  std::size_t at_ = 0;
};

std::optional<TokenType> type_of_code(std::uint8_t code) {
  switch (code) {
    case 1: return TokenType::u8;
    case 2: return TokenType::i8;
    case 3: return TokenType::i16;
    case 4: return TokenType::i32;
    case 5: return TokenType::i64;
    case 8: return TokenType::u16;
    default: return std::nullopt;
  }
}

}  // namespace

std::size_t size_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
    case TokenType::i8: return 1;
    case TokenType::i16:
    case TokenType::u16: return 2;
    case TokenType::i32:
    case TokenType::u32: return 4;
    case TokenType::i64: break;
  }
  return 8;
}

std::filesystem::path megatron_index_path(const std::filesystem::path& tokens) {
  return std::filesystem::path(tokens).replace_extension(".idx");
}

bool is_megatron_index(const std::filesystem::path& path) { return begins_with(path, index_magic); }

MegatronIndex read_megatron_index(const std::filesystem::path& path, std::uint64_t token_bytes) {
  const DataFile file(path);
  if (file.size() < index_header_bytes) refuse_index(file, file.size(), "is truncated: an index has a header of 34 bytes");
  if (!is_megatron_index(path)) refuse_index(file, 0, "is not an index of Megatron-LM: it does not begin with MMIDIDX");
  if (const auto version = number_at<std::uint64_t>(file, 9); version != 1)
    refuse_index(file, 9, fmt::format("has version {}, must be 1", version));
  const auto code = number_at<std::uint8_t>(file, 17);
  const std::optional<TokenType> type = type_of_code(code);
  if (!type) refuse_index(file, 17, fmt::format("has type {}, must be one of integers: 1, 2, 3, 4, 5 or 8", code));
  const auto sequences = number_at<std::uint64_t>(file, 18), documents = number_at<std::uint64_t>(file, 26);
  const std::uint64_t room = file.size() - index_header_bytes;
  if (sequences == 0 || sequences > room / 12) {
    refuse_index(file, 18,
                 fmt::format("says {} sequences, must be 1 to {} in a file of {} bytes", sequences, room / 12, file.size()));
  }
  const std::uint64_t rest = room - 12 * sequences;
  if (documents > rest / 8 || rest != 8 * documents) {
    refuse_index(file, 26,
                 fmt::format("says {} document indices, but has {} bytes for them, must be 8 for each{}", documents, rest,
                             rest == 8 * documents + sequences ? ": modes of multimodal sequences are not supported" : ""));
  }
  MegatronIndex index{*type, 0, static_cast<std::int64_t>(sequences), {}};
  const std::size_t width = size_of(*type);
  const std::uint64_t tokens = token_bytes / width;
  IndexArray<std::int32_t> lengths(file, index_header_bytes, sequences);
  IndexArray<std::int64_t> pointers(file, index_header_bytes + 4 * sequences, sequences);
  std::uint64_t at = 0;  // in tokens, never more than there are
  for (std::uint64_t n = 0; n < sequences; ++n) {
    const std::int32_t length = lengths.next();
    const std::int64_t pointer = pointers.next();
    if (length < 0 || static_cast<std::uint64_t>(length) > tokens - at) {
      refuse_index(file, lengths.offset(),
                   fmt::format("gives sequence {} a length of {} tokens, must be 0 to {}, what is left in the .bin of {} bytes",
                               n, length, tokens - at, token_bytes));
    }
    if (pointer < 0 || static_cast<std::uint64_t>(pointer) != at * width) {
      refuse_index(file, pointers.offset(),
                   fmt::format("lets sequence {} begin at byte {} of the .bin, must be {}, where the one before ends", n,
                               pointer, at * width));
    }
    at += static_cast<std::uint64_t>(length);
  }
  if (at * width != token_bytes) {
    refuse_index(file, lengths.offset(),
                 fmt::format("has sequences of {} bytes in all, but the .bin has {}", at * width, token_bytes));
  }
  index.tokens = static_cast<std::int64_t>(at);
  IndexArray<std::int64_t> starts(file, index_header_bytes + 12 * sequences, documents);
  IndexArray<std::int64_t> again(file, index_header_bytes + 4 * sequences, sequences);  // the pointers
  std::int64_t before = 0, passed = 0, first = 0;  // the last of the passed sequences begins at token `first`
  for (std::uint64_t n = 0; n < documents; ++n) {
    const std::int64_t start = starts.next();
    if (start < before || start > index.sequences || (n == 0 && start != 0)) {
      refuse_index(file, starts.offset(),
                   fmt::format("lets document {} begin with sequence {}, must be {} to {}", n, start, before,
                               n == 0 ? 0 : index.sequences));
    }
    before = start;
    for (; passed <= start && passed < index.sequences; ++passed) first = again.next() / static_cast<std::int64_t>(width);
    if (start < index.sequences && first < index.tokens) index.marks.begin_document(first);
  }
  if (documents < 2) index.marks = {};  // written by a builder that was never told where a document ends
  return index;
}

}  // namespace plait::data
