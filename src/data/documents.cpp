#include "data/documents.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "data/files.h"

namespace plait::data {

void DocumentMarks::begin_document(std::int64_t token) {
  if (!documents_.empty() && documents_.back() == token) return;
  require(documents_.empty() || documents_.back() < token, "DocumentMarks: documents are in order");
  documents_.push_back(token);
}

void DocumentMarks::mask(std::int64_t first, std::int64_t end) {
  if (first == end) return;
  require(first < end && (masked_.empty() || masked_.back() <= first), "DocumentMarks: masked runs are in order");
  if (!masked_.empty() && masked_.back() == first) {
    masked_.back() = end;
  } else {
    masked_.insert(masked_.end(), {first, end});
  }
}

void DocumentMarks::append(const DocumentMarks& following, std::int64_t first) {
  for (const std::int64_t document : following.documents_) begin_document(first + document);
  for (std::size_t run = 0; run < following.masked_.size(); run += 2)
    mask(first + following.masked_[run], first + following.masked_[run + 1]);
}

DocumentMarks DocumentMarks::part(std::int64_t first, std::int64_t count) const {
  DocumentMarks part;
  const std::int64_t end = first + count;
  for (auto at = std::ranges::lower_bound(documents_, first); at != documents_.end() && *at < end; ++at)
    part.begin_document(*at - first);
  // The first run that ends behind `first`.
  auto border = static_cast<std::size_t>(std::ranges::upper_bound(masked_, first) - masked_.begin());
  for (border -= border % 2; border < masked_.size() && masked_[border] < end; border += 2)
    part.mask(std::max(masked_[border], first) - first, std::min(masked_[border + 1], end) - first);
  return part;
}

void DocumentMarks::add_to(std::span<TokenMarks> marks, std::int64_t first) const {
  const DocumentMarks here = part(first, std::ssize(marks));
  for (const std::int64_t document : here.documents_) marks[static_cast<std::size_t>(document)] |= begins_document;
  for (std::size_t run = 0; run < here.masked_.size(); run += 2) {
    for (std::int64_t token = here.masked_[run]; token < here.masked_[run + 1]; ++token)
      marks[static_cast<std::size_t>(token)] |= masked;
  }
}

namespace {

constexpr std::string_view document_index_magic = "PLAITDOC";
constexpr std::uint64_t document_index_version = 1;
constexpr std::size_t document_index_words = 5;  // of the header, including the magic

using IndexHeader = std::array<std::uint64_t, document_index_words>;

[[noreturn]] void refuse_documents(const std::filesystem::path& path, std::uint64_t offset, const std::string& why) {
  throw ConfigError({{path.string(), "", fmt::format("{} (at byte offset {})", why, offset), "", 0}});
}

// Reads ascending numbers from 0 to `most`.
std::vector<std::int64_t> ascending(const DataFile& file, std::uint64_t offset, std::uint64_t count, std::int64_t most) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  file.read(offset, std::as_writable_bytes(std::span(numbers)));
  std::int64_t least = 0;
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (numbers[n] < least || numbers[n] > most) {
      refuse_documents(file.path(), offset + n * sizeof(std::int64_t),
                       fmt::format("has token {}, must be {} to {}", numbers[n], least, most));
    }
    least = numbers[n] + 1;
  }
  return numbers;
}

}  // namespace

std::filesystem::path document_index_path(const std::filesystem::path& shard) {
  return std::filesystem::path(shard).replace_extension(".documents");
}

bool is_document_index(const std::filesystem::path& path) {
  if (path.extension() != ".documents") return false;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  return begins_with(path, document_index_magic) ||
         std::filesystem::exists(std::filesystem::path(path).replace_extension(".bin"), ignored);
}

DocumentMarks read_document_index(const std::filesystem::path& path, std::int64_t tokens) {
  const DataFile file(path);
  IndexHeader header{};
  if (file.size() < sizeof header) refuse_documents(path, file.size(), "is truncated: the header has 40 bytes");
  file.read(0, std::as_writable_bytes(std::span(header)));
  if (std::memcmp(header.data(), document_index_magic.data(), document_index_magic.size()) != 0)
    refuse_documents(path, 0, "is not an index of documents: it does not begin with PLAITDOC");
  if (header[1] != document_index_version) refuse_documents(path, 8, fmt::format("has version {}, must be 1", header[1]));
  if (header[2] != static_cast<std::uint64_t>(tokens))
    refuse_documents(path, 16, fmt::format("is of a shard of {} tokens, but the .bin beside it has {}", header[2], tokens));
  const std::uint64_t room = (file.size() - sizeof header) / sizeof(std::int64_t);
  if (header[3] > room || header[4] > room / 2 || header[3] + 2 * header[4] != room ||
      file.size() % sizeof(std::int64_t) != 0) {
    refuse_documents(path, 24,
                     fmt::format("says {} documents and {} masked runs, but has {} bytes for them, must be 8 and 16 each",
                                 header[3], header[4], file.size() - sizeof header));
  }
  DocumentMarks marks;
  const std::uint64_t runs_at = sizeof header + header[3] * sizeof(std::int64_t);
  for (const std::int64_t document : ascending(file, sizeof header, header[3], tokens - 1)) marks.begin_document(document);
  const std::vector<std::int64_t> borders = ascending(file, runs_at, 2 * header[4], tokens);
  for (std::size_t run = 0; run < borders.size(); run += 2) marks.mask(borders[run], borders[run + 1]);
  return marks;
}

void write_document_index(const std::filesystem::path& path, std::int64_t tokens, const DocumentMarks& marks) {
  IndexHeader header{};
  std::memcpy(header.data(), document_index_magic.data(), document_index_magic.size());
  header[1] = document_index_version;
  header[2] = static_cast<std::uint64_t>(tokens);
  header[3] = marks.documents().size();
  header[4] = marks.masked_runs().size() / 2;
  std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (const std::vector<std::int64_t>* numbers : {&marks.documents(), &marks.masked_runs()})
    bytes.append(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(std::int64_t));
  write_text_file(path, bytes);
}

}  // namespace plait::data
