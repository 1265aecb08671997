#include "data/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"

namespace plait::data {
namespace {

namespace fs = std::filesystem;

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

 private:
  void visit(const fs::path& base, std::size_t index) {
    // Two `**` in a glob reach the same place by many ways; once is enough.
    if (!visited_.insert({base.string(), index}).second) return;
    if (index == components_.size()) {
      std::error_code ignored;
      if (fs::is_regular_file(base, ignored)) files_.insert(base.string());
      return;
    }
    const std::string component = components_[index].string();
    if (!has_wildcard(component)) return visit(base / component, index + 1);
    const bool any_depth = component == "**";
    if (any_depth) visit_below(base, index);
    std::error_code failed;
    for (fs::directory_iterator entry(base.empty() ? fs::path(".") : base, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      const std::string name = entry->path().filename().string();
      if (!matches(any_depth ? "*" : component, name)) continue;
      std::error_code ignored;
      const bool folder = entry->is_directory(ignored);
      if (folder && entry->is_symlink(ignored)) continue;
      if (any_depth && folder) visit(base / name, index);
      if (!any_depth) visit(base / name, index + 1);
      if (any_depth && !folder && index + 1 == components_.size()) visit(base / name, index + 1);
    }
  }

  // `**` standing for no folder at all.
  void visit_below(const fs::path& base, std::size_t index) {
    if (index + 1 < components_.size()) visit(base, index + 1);
  }

  std::vector<fs::path> components_;
  std::set<std::pair<std::string, std::size_t>> visited_;
  std::set<std::string> files_;
};

}  // namespace

std::vector<MatchedFile> match_files(const std::vector<std::string>& globs, const std::string& key) {
  std::vector<MatchedFile> files;
  std::set<fs::path> seen;
  std::vector<ConfigProblem> problems;
  for (const std::string& glob : globs) {
    const GlobMatcher walk{fs::path(glob)};
    std::error_code ignored;
    if (walk.files().empty()) {
      const bool folder = fs::is_directory(glob, ignored);
      problems.push_back({key, glob,
                          folder ? fmt::format("is a directory: write {}/** for the files below it", glob) : "matches no file",
                          "", 0});
    }
    for (const std::string& file : walk.files()) {
      if (seen.insert(fs::path(file).lexically_normal()).second) files.push_back({file, has_wildcard(glob)});
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  return files;
}

MappedFile::MappedFile(const fs::path& path) {
  const auto fail = [&](const char* what) -> void {
    throw ConfigError({{path.string(), "", fmt::format("{}: {}", what, std::strerror(errno)), "", 0}});
  };
  // O_NONBLOCK: opening a named pipe that nobody writes to must not hang.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail("cannot be opened");
  struct Close {
    int descriptor;
    ~Close() { ::close(descriptor); }
  } const close{descriptor};
  struct stat info{};
  if (::fstat(descriptor, &info) != 0) fail("cannot be examined");
  if (!S_ISREG(info.st_mode)) throw ConfigError({{path.string(), "", "is not a regular file", "", 0}});
  bytes_ = static_cast<std::size_t>(info.st_size);
  if (bytes_ == 0) return;
  void* memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (memory == MAP_FAILED) fail("cannot be mapped");
  memory_ = memory;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile::~MappedFile() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

}  // namespace plait::data
