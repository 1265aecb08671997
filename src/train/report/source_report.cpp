#include "train/report/source_report.h"

#include <spdlog/fmt/fmt.h>

#include "train/report/progress_text.h"

namespace plait::train {
namespace {

constexpr std::size_t longest_globs = 60;

std::string shortened(const std::string& globs) {
  return globs.size() <= longest_globs ? globs : globs.substr(0, longest_globs - 3) + "...";
}

}  // namespace

std::string source_report(const std::vector<data::SourceUse>& uses, std::int64_t sequence_length) {
  std::int64_t samples = 0;
  for (const data::SourceUse& use : uses) samples += use.samples;
  std::string text;
  for (const data::SourceUse& use : uses) {
    const double share = samples > 0 ? static_cast<double>(use.samples) / static_cast<double>(samples) : 0.0;
    text += fmt::format("{}data {}: {} tokens{}, {:.3g} epochs of {}", text.empty() ? "" : "\n", shortened(use.globs),
                        format_count(static_cast<double>(use.samples) * static_cast<double>(sequence_length)),
                        uses.size() > 1 ? fmt::format(" ({:.2f} %)", 100 * share) : "", use.epochs(),
                        format_count(static_cast<double>(use.tokens)));
  }
  return text;
}

}  // namespace plait::train
