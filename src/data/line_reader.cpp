#include "data/line_reader.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"

namespace plait::data {
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

}  // namespace plait::data
