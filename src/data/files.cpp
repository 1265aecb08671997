#include "data/files.h"

#include <spdlog/fmt/fmt.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"

namespace plait::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t reader_bytes = 1 << 20;

bool has_wildcard(std::string_view component) { return component.find_first_of("*?") != std::string_view::npos; }

// `*` and `?` within one component. Greedy with one point to return to, so linear in practice and quadratic at worst.
bool matches(std::string_view pattern, std::string_view name) {
  if (name.starts_with('.') && !pattern.starts_with('.')) return false;
  std::size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

class GlobMatcher {
 public:
  explicit GlobMatcher(const fs::path& glob) : components_(glob.begin(), glob.end()) {
    // "a//b" and a slash at the end give empty components.
    std::erase_if(components_, [](const fs::path& component) { return component.empty(); });
    visit(fs::path(), 0);
  }
  const std::set<std::string>& files() const { return files_; }
  // Possible matches that cannot be seen, with the reason: "corpus/b: Permission denied".
  const std::set<std::string>& unseen() const { return unseen_; }

 private:
  void visit(const fs::path& base, std::size_t index) {
    // With two `**`, a glob reaches the same place by many ways; once is enough.
    if (!visited_.insert({base.string(), index}).second) return;
    std::error_code error;
    if (index == components_.size()) {
      const fs::file_status status = fs::status(base, error);
      if (fs::is_regular_file(status)) files_.insert(base.string());
      if (status.type() == fs::file_type::none) cannot_see(base, error.message());
      std::error_code ignored;
      if (status.type() == fs::file_type::not_found && fs::is_symlink(base, ignored)) cannot_see(base, "a link to nothing");
      return;
    }
    const std::string component = components_[index].string();
    if (!has_wildcard(component)) return visit(base / component, index + 1);
    const bool any_depth = component == "**";
    if (any_depth) visit_below(base, index);
    for (fs::directory_iterator entry(base.empty() ? fs::path(".") : base, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (!matches(any_depth ? "*" : component, name)) continue;
      std::error_code ignored;  // visit() reports entries that cannot be seen
      const bool folder = entry->is_directory(ignored);
      if (any_depth && folder && entry->is_symlink(ignored)) continue;  // the link may lead round in a circle
      if (any_depth && folder) visit(base / name, index);
      if (!any_depth) visit(base / name, index + 1);
      if (any_depth && !folder && index + 1 == components_.size()) visit(base / name, index + 1);
    }
    const bool is_none = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    if (error && !is_none) cannot_see(base, error.message());
  }

  void cannot_see(const fs::path& path, const std::string& why) { unseen_.insert(path.string() + ": " + why); }

  // Matches `**` with no folder at all.
  void visit_below(const fs::path& base, std::size_t index) {
    if (index + 1 < components_.size()) visit(base, index + 1);
  }

  std::vector<fs::path> components_;
  std::set<std::pair<std::string, std::size_t>> visited_;
  std::set<std::string> files_, unseen_;
};

}  // namespace

std::vector<MatchedFile> match_files(const std::vector<std::string>& globs, const std::string& key) {
  std::vector<MatchedFile> files;
  std::set<fs::path> seen;
  std::vector<ConfigProblem> problems;
  for (const std::string& glob : globs) {
    const GlobMatcher walk{fs::path(glob)};
    std::error_code ignored;
    for (const std::string& unseen : walk.unseen())
      problems.push_back({key, glob, "matches a path that cannot be read: " + unseen, "", 0});
    if (walk.files().empty() && walk.unseen().empty()) {
      const fs::file_status status = fs::status(glob, ignored);  // for a path without wildcards
      std::string rule = "matches no file";
      if (fs::is_directory(status)) {
        rule = fmt::format("is a directory: write {}/** for the files below it", glob);
      } else if (fs::exists(status)) {
        rule = "is not a regular file, such as data has to be: write what it gives to one";
      }
      problems.push_back({key, glob, rule, "", 0});
    }
    for (const std::string& file : walk.files()) {
      if (seen.insert(fs::path(file).lexically_normal()).second) files.push_back({file, has_wildcard(glob)});
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  return files;
}

DataFile::DataFile(const fs::path& path) : path_(path) {
  try {
    file_.emplace(File::open_read(path));
    identity_ = file_->identity();
    bytes_ = file_->size();
  } catch (const ConfigError& error) {
    // Rethrown as a problem of the file, so that it is listed with those of others.
    const std::string text = error.what(), name = path.string() + ": ";
    const std::size_t at = text.find(name);
    throw ConfigError(
        {{path.string(), "", "cannot be opened: " + (at == std::string::npos ? text : text.substr(at + name.size())), "", 0}});
  }
}

void DataFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  const auto read_from = [&](const File& file) {
    try {
      file.read_at(offset, to.data(), to.size());
    } catch (const ConfigError& error) {
      if (file.size() >= bytes_) throw;
      throw ConfigError(
          fmt::format("{}; it had {} bytes when it was opened, and has become shorter since: put back what it lost, and resume",
                      error.what(), bytes_));
    }
  };
  if (file_) return read_from(*file_);
  const File again = File::open_read(path_);
  if (again.identity() != identity_) throw ConfigError(path_.string() + ": is not the file any more that the run began with");
  read_from(again);
}

std::string DataFile::text() const {
  std::string text(bytes_, '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool begins_with(const fs::path& path, std::string_view bytes) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  try {
    const DataFile file(path);
    std::string begin(bytes.size(), '\0');
    if (file.size() < begin.size()) return false;
    file.read(0, std::as_writable_bytes(std::span(begin)));
    return begin == bytes;
  } catch (const ConfigError&) {
    return false;
  }
}

void refuse_compressed(const DataFile& file) {
  using namespace std::string_view_literals;
  struct Kind {
    std::string_view magic, is, remedy;
  };
  static constexpr std::array<Kind, 5> kinds{{
      {"\x1f\x8b\x08"sv, "compressed by gzip", "decompress it (gunzip), or compress it with zstd, as NAME.zst"},
      {"\x28\xb5\x2f\xfd"sv, "compressed by zstd", "name it NAME.zst (lines of JSON: NAME.jsonl.zst)"},
      {"\xfd\x37zXZ\0"sv, "compressed by xz", "decompress it (unxz), or compress it with zstd, as NAME.zst"},
      {"PK\3\4"sv, "a zip archive", "unpack it (unzip)"},
      {"PAR1\x15"sv, "a Parquet file", "write its texts as lines of JSON, NAME.jsonl"},
  }};
  for (const Kind& kind : kinds) {
    std::string begin(kind.magic.size(), '\0');
    if (file.size() < begin.size()) continue;
    file.read(0, std::as_writable_bytes(std::span(begin)));
    if (begin != kind.magic) continue;
    throw ConfigError({{file.path().string(), "", fmt::format("is {}, not text: {}", kind.is, kind.remedy), "", 0}});
  }
}

TextReader::TextReader(const DataFile& file) : file_(file), zstd_(is_zstd(file.path()) ? new ZstdReader(file) : nullptr) {
  if (!zstd_) refuse_compressed(file);
}

TextReader::~TextReader() = default;

std::size_t TextReader::read(std::span<char> to) {
  if (zstd_) return zstd_->read(to);
  const std::span<char> part = to.first(static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), file_.size() - read_)));
  file_.read(read_, std::as_writable_bytes(part));
  read_ += part.size();
  return part.size();
}

std::string_view TextReader::peek(std::size_t bytes) {
  if (buffer_.size() - begin_ < bytes && !ended_) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    const std::size_t kept = buffer_.size(), wanted = std::max(bytes - kept, reader_bytes);
    buffer_.resize(kept + wanted);
    const std::size_t got = read(std::span(buffer_).subspan(kept));
    buffer_.resize(kept + got);
    ended_ = got < wanted;
  }
  return std::string_view(buffer_).substr(begin_);
}

std::string whole_text(const DataFile& file) {
  std::string text;
  TextReader reader(file);
  for (std::string_view part; !(part = reader.peek(1)).empty(); reader.skip(part.size())) text += part;
  return text;
}

std::optional<std::uint64_t> find_invalid_utf8(const DataFile& file) {
  constexpr std::size_t longest_character = 4;
  TextReader reader(file);
  std::uint64_t offset = 0;
  for (std::string_view text; !(text = reader.peek(longest_character)).empty();) {
    const std::size_t valid = first_invalid_utf8(text).value_or(text.size());
    if (valid == 0) return offset;  // else it may be a character whose end is not in memory yet
    reader.skip(valid);
    offset += valid;
  }
  return std::nullopt;
}

std::uint64_t TextReader::file_bytes_read() const { return zstd_ ? zstd_->file_bytes_read() : read_; }

void TextReader::skip(std::size_t bytes) {
  require(bytes <= buffer_.size() - begin_, "TextReader::skip: more than peek() returned");
  begin_ += bytes;
}

namespace {

constexpr std::size_t usual_line_bytes = 1 << 16, most_line_bytes = std::size_t{256} << 20;

}  // namespace

std::optional<std::string_view> LineReader::next() {
  reader_.skip(held_);
  held_ = 0;
  ++number_;
  std::size_t searched = 0, wanted = usual_line_bytes;
  while (true) {
    const std::string_view text = reader_.peek(wanted);
    const std::size_t end = text.find('\n', searched);
    const bool ends = end != std::string_view::npos;
    if (!ends && text.empty()) return std::nullopt;
    if ((ends ? end : text.size()) > most_line_bytes) {
      throw ConfigError({{fmt::format("{}:{}", file_.path().string(), number_), "",
                          fmt::format("is a line of more than {} bytes", most_line_bytes), "", 0}});
    }
    if (ends || text.size() < wanted) {
      held_ = ends ? end + 1 : text.size();
      std::string_view line = text.substr(0, ends ? end : text.size());
      if (line.ends_with('\r')) line.remove_suffix(1);
      return line;
    }
    searched = text.size();
    wanted = searched < most_line_bytes / 2 ? 2 * searched
                                            : most_line_bytes + 1;  // one byte past the limit shows that it is too long
  }
}

namespace {

constexpr std::uint64_t compressed_at_once = 1 << 18;
constexpr int most_window_log = 27;  // the default limit of `zstd -d`

}  // namespace

ZstdReader::ZstdReader(const DataFile& file) : file_(file), context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
  require(
      context_ != nullptr && ZSTD_isError(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, most_window_log)) == 0,
      "ZstdReader: no context");
}

ZstdReader::~ZstdReader() = default;

void ZstdReader::refuse(const std::string& why) const {
  const std::uint64_t offset = read_ - (input_.size() - at_);
  throw ConfigError({{file_.path().string(), "", fmt::format("{} (at byte offset {})", why, offset), "", 0}});
}

std::size_t ZstdReader::read(std::span<char> to) {
  ZSTD_outBuffer out{to.data(), to.size(), 0};
  while (out.pos < out.size) {
    if (at_ == input_.size() && read_ < file_.size()) {
      input_.resize(static_cast<std::size_t>(std::min(compressed_at_once, file_.size() - read_)));
      file_.read(read_, std::as_writable_bytes(std::span(input_)));
      read_ += input_.size();
      at_ = 0;
    }
    const bool file_ends = at_ == input_.size();
    if (file_ends && !within_frame_) break;
    ZSTD_inBuffer in{input_.data(), input_.size(), at_};
    const std::size_t written = out.pos;
    const std::size_t result = ZSTD_decompressStream(context_.get(), &out, &in);
    at_ = in.pos;
    if (ZSTD_isError(result) != 0) {
      if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        refuse("needs a window of more than 128 MiB: compress it without --long");
      refuse(fmt::format("is not whole zstd data: {}", ZSTD_getErrorName(result)));
    }
    within_frame_ = result != 0;
    if (within_frame_ && file_ends && out.pos == written) refuse("is truncated: a zstd frame does not end");
  }
  return out.pos;
}

}  // namespace plait::data
