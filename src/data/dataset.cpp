#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/philox.h"
#include "data/token_source.h"

namespace plait::data {
namespace {

// Ranges of sources, one after another.
class Split {
 public:
  void add(const TokenSource& source, std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    parts_.push_back({&source, first, tokens_});
    tokens_ += count;
  }

  std::int64_t tokens() const { return tokens_; }

  void read(std::int64_t first, std::span<std::int32_t> out) const {
    require(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tokens_, "Split::read: range outside the split");
    auto part = std::ranges::upper_bound(parts_, first, {}, &SplitPart::start) - 1;
    while (!out.empty()) {
      const std::int64_t end = part + 1 == parts_.end() ? tokens_ : (part + 1)->start;
      const std::size_t count = std::min(out.size(), static_cast<std::size_t>(end - first));
      part->source->read(part->first + (first - part->start), out.first(count));
      out = out.subspan(count);
      first += static_cast<std::int64_t>(count);
      ++part;
    }
  }

 private:
  struct SplitPart {
    const TokenSource* source;
    std::int64_t first;  // within the source
    std::int64_t start;  // within the split
  };
  std::vector<SplitPart> parts_;
  std::int64_t tokens_ = 0;
};

class FileDataset final : public Dataset {
 public:
  FileDataset(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab)
      : Dataset(config.data.sequence_length), random_(config.run.seed, "data") {
    const DataConfig& data = config.data;
    const bool own_files = !data.validation.empty();
    const double fraction = own_files ? 0.0 : data.validation_fraction;
    sources_ = open_sources(data.train, "data.train", tokenizer, vocab);
    for (const auto& source : sources_) {
      const auto kept = static_cast<std::int64_t>(std::floor(static_cast<double>(source->tokens()) * fraction));
      train_.add(*source, 0, source->tokens() - kept);
      validation_.add(*source, source->tokens() - kept, kept);
    }
    if (own_files) {
      validation_sources_ = open_sources(data.validation, "data.validation", tokenizer, vocab);
      for (const auto& source : validation_sources_) validation_.add(*source, 0, source->tokens());
    }
    const bool validates = own_files || fraction > 0;
    std::vector<ConfigProblem> problems;
    if (train_.tokens() < window()) problems.push_back({"data.train", "", too_short("training", train_), "", 0});
    if (validates && validation_.tokens() < window()) {
      std::string remedy = too_short("validation", validation_);
      if (!own_files) remedy += "; 0 turns validation off";
      problems.push_back({own_files ? "data.validation" : "data.validation_fraction",
                          own_files ? "" : fmt::format("{}", fraction), remedy, "", 0});
    }
    if (!problems.empty()) throw ConfigError(problems);
  }

  std::int64_t train_tokens() const override { return train_.tokens(); }
  std::int64_t validation_tokens() const override { return validation_.tokens(); }

  void train_sample(std::int64_t step, std::int64_t sample, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    const auto starts = static_cast<std::uint64_t>(train_.tokens() - window() + 1);
    const std::uint64_t start = random_.below(starts, static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(step));
    read_window(train_, static_cast<std::int64_t>(start), tokens, targets);
  }

  void validation_sample(std::int64_t index, std::int64_t count, std::span<std::int32_t> tokens,
                         std::span<std::int32_t> targets) const override {
    require(validation_.tokens() > 0, "validation_sample: there is no validation split");
    require(index >= 0 && index < count, "validation_sample: index outside the evaluation");
    const std::int64_t last = validation_.tokens() - window();
    // index * last / (count - 1) without overflow for any split that fits on a disk.
    const double position = count > 1 ? static_cast<double>(index) / static_cast<double>(count - 1) : 0.0;
    read_window(validation_, std::min(last, static_cast<std::int64_t>(position * static_cast<double>(last))), tokens, targets);
  }

 private:
  std::int64_t window() const { return sequence_length() + 1; }

  std::string too_short(const char* name, const Split& split) const {
    return fmt::format("the {} split has {} tokens, must be at least data.sequence_length + 1 = {}", name, split.tokens(),
                       window());
  }

  void read_window(const Split& split, std::int64_t start, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
    require(static_cast<std::int64_t>(tokens.size()) == sequence_length() && tokens.size() == targets.size(),
            "Dataset: a sample has sequence_length tokens and targets");
    std::vector<std::int32_t> all(static_cast<std::size_t>(window()));  // in one read
    split.read(start, all);
    std::copy(all.begin(), all.end() - 1, tokens.begin());
    std::copy(all.begin() + 1, all.end(), targets.begin());
  }

  Random random_;
  std::vector<std::unique_ptr<TokenSource>> sources_, validation_sources_;
  Split train_, validation_;
};

class RandomDataset final : public Dataset {
 public:
  RandomDataset(const Config& config, std::int64_t vocab)
      : Dataset(config.data.sequence_length),
        random_(config.run.seed, "random tokens"),
        vocab_(static_cast<std::uint64_t>(vocab)) {}

  std::int64_t train_tokens() const override { return 0; }
  std::int64_t validation_tokens() const override { return 0; }

  void train_sample(std::int64_t step, std::int64_t sample, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    require(static_cast<std::int64_t>(tokens.size()) == sequence_length() && tokens.size() == targets.size(),
            "Dataset: a sample has sequence_length tokens and targets");
    const std::uint64_t first = static_cast<std::uint64_t>(sample) * (tokens.size() + 1);
    const auto token = [&](std::size_t i) {
      return static_cast<std::int32_t>(random_.below(vocab_, first + i, static_cast<std::uint64_t>(step)));
    };
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = token(i);
    std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
    targets.back() = token(tokens.size());
  }

  void validation_sample(std::int64_t, std::int64_t, std::span<std::int32_t>, std::span<std::int32_t>) const override {
    throw InternalError("random tokens have no validation split");
  }

 private:
  Random random_;
  std::uint64_t vocab_;
};

}  // namespace

std::shared_ptr<const Dataset> open_dataset(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab) {
  if (tokenizer.vocab() > vocab) {
    throw ConfigError({{"model.vocab", std::to_string(vocab),
                        fmt::format("must be at least the tokenizer's vocabulary, {}", tokenizer.vocab()), "", 0}});
  }
  if (config.data.tokenizer == "random") return std::make_shared<RandomDataset>(config, vocab);
  return std::make_shared<FileDataset>(config, tokenizer, vocab);
}

}  // namespace plait::data
