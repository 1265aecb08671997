#include "train/report/source_report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <numbers>
#include <optional>

#include "core/format.h"
#include "train/evaluation.h"
#include "train/report/progress.h"

namespace plait::train {
namespace {

constexpr std::size_t longest_globs = 60;
constexpr std::int64_t most_windows_read = 16;

std::string shortened(const std::string& globs) {
  return globs.size() <= longest_globs ? globs : globs.substr(0, longest_globs - 3) + "...";
}

// Counts the targets that count in the first windows after step `step`; nullopt if the tokens have no text.
std::optional<double> bytes_per_token(const data::Dataset& dataset, const data::Tokenizer& tokenizer, const TrainConfig& train,
                                      std::int64_t step) {
  if (!data::has_text(tokenizer.kind()) || dataset.train_tokens() == 0) return std::nullopt;
  const data::TokenSet special = data::special_tokens(tokenizer);
  std::int64_t tokens = 0, bytes = 0;
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(dataset.sequence_length())), targets(inputs.size());
  for (std::int64_t sample = 0; sample < std::min(train.global_batch, most_windows_read); ++sample) {
    dataset.train_sample(step + 1, sample, {inputs, targets});
    const auto of_sample = counted_bytes(tokenizer, special, inputs, targets);
    if (!of_sample) return std::nullopt;
    bytes += *of_sample;
    tokens += std::ranges::count_if(targets, [](std::int32_t target) { return target != data::no_target; });
  }
  return bytes > 0 ? std::optional(static_cast<double>(bytes) / static_cast<double>(tokens)) : std::nullopt;
}

}  // namespace

std::string source_report(const std::vector<data::SourceUse>& uses, std::int64_t sequence_length) {
  std::int64_t samples = 0;
  for (const data::SourceUse& use : uses) samples += use.samples;
  std::string text;
  for (const data::SourceUse& use : uses) {
    const double share = samples > 0 ? static_cast<double>(use.samples) / static_cast<double>(samples) : 0.0;
    text += fmt::format("{}data {}: {} tokens{}, {} epochs of {}", text.empty() ? "" : "\n", shortened(use.globs),
                        format_count(static_cast<double>(use.samples) * static_cast<double>(sequence_length)),
                        uses.size() > 1 ? fmt::format(" ({:.2f} %)", 100 * share) : "", format_count(use.epochs()),
                        format_count(static_cast<double>(use.tokens)));
  }
  return text;
}

std::string data_summary(const data::Dataset& dataset, const data::Tokenizer& tokenizer, const TrainConfig& train,
                         const data::SamplePosition& start) {
  const std::int64_t samples = (train.steps - start.step) * train.global_batch;
  const auto tokens_of = [&](std::int64_t count) {
    return format_count(static_cast<double>(count) * static_cast<double>(dataset.sequence_length()));
  };
  std::string text = "data: ";
  if (dataset.train_tokens() > 0) {
    text += format_count(static_cast<double>(dataset.train_tokens())) + " tokens to train on";
    if (dataset.validation_tokens() > 0)
      text += fmt::format(", {} to validate", format_count(static_cast<double>(dataset.validation_tokens())));
  } else {
    text += "random tokens";
  }
  text += fmt::format("; steps {} to {} take {}", start.step + 1, train.steps, tokens_of(samples));
  const std::vector<data::SourceUse> before = dataset.sources_used(start.samples),
                                     after = dataset.sources_used(start.samples + samples);
  for (std::size_t n = 0; n < after.size(); ++n)
    text += (n == 0 ? ", so this run makes " : " and ") + format_count(after[n].epochs() - before[n].epochs());
  if (!after.empty()) text += after.size() > 1 ? " epochs of its sources" : " epochs";
  if (const auto bytes = bytes_per_token(dataset, tokenizer, train, start.step))
    text +=
        fmt::format("; bits per byte are {:.3g} x the loss ({:.2f} bytes a token)", 1 / (*bytes * std::numbers::ln2), *bytes);
  return text;
}

}  // namespace plait::train
