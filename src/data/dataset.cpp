#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"
#include "core/philox.h"
#include "data/split.h"
#include "data/window_order.h"

namespace plait::data {
namespace {

// Changes whenever other windows follow each other under the same name, seed and sizes.
constexpr const char* order_version = "epochs, version 1";

// Share of the training files that is kept for validation.
double kept_fraction(const DataConfig& data) { return data.validation.empty() ? data.validation_fraction : 0.0; }

std::int64_t kept_tokens(const TokenSource& source, double fraction) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(source.tokens()) * fraction));
}

class FileValidation final : public ValidationTokens {
 public:
  FileValidation(const DataConfig& data, const Tokenizer& tokenizer, std::int64_t vocab) {
    const bool own_files = !data.validation.empty();
    const double fraction = own_files ? 1.0 : kept_fraction(data);
    sources_ = own_files ? open_sources(data.validation, "data.validation", tokenizer, vocab)
                         : open_sources(data.train, "data.train", tokenizer, vocab);
    for (const auto& source : sources_) {
      const std::int64_t kept = kept_tokens(*source, fraction);
      split_.add(*source, source->tokens() - kept, kept);
    }
    if (split_.tokens() < 2) {
      throw ConfigError(
          {{own_files ? "data.validation" : "data.validation_fraction", own_files ? "" : fmt::format("{}", fraction),
            fmt::format("the validation split has {} tokens, must be at least 2", split_.tokens()), "", 0}});
    }
  }

  std::int64_t tokens() const override { return split_.tokens(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override { split_.read(first, out); }

 private:
  std::vector<std::unique_ptr<TokenSource>> sources_;
  Split split_;
};

void check_vocabulary(const Tokenizer& tokenizer, std::int64_t vocab) {
  if (tokenizer.vocab() <= vocab) return;
  throw ConfigError({{"model.vocab", std::to_string(vocab),
                      fmt::format("must be at least the tokenizer's vocabulary, {}", tokenizer.vocab()), "", 0}});
}

class FileDataset final : public Dataset {
 public:
  FileDataset(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab, SamplePosition position)
      : Dataset(config.data.sequence_length),
        seed_(config.run.seed),
        shuffle_(config.data.shuffle),
        global_batch_(config.train.global_batch),
        position_(position) {
    const DataConfig& data = config.data;
    const bool own_files = !data.validation.empty();
    const double fraction = kept_fraction(data);
    sources_ = open_sources(data.train, "data.train", tokenizer, vocab);
    for (const auto& source : sources_) {
      const std::int64_t kept = kept_tokens(*source, fraction);
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
    order_.emplace(seed_, "data", train_.tokens(), sequence_length(), shuffle_);
  }

  std::int64_t train_tokens() const override { return train_.tokens(); }
  std::int64_t validation_tokens() const override { return validation_.tokens(); }

  void train_sample(std::int64_t step, std::int64_t sample, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    read_window(train_, order_->start(number_of(step, sample)), tokens, targets);
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

  SampleOrder sample_order() const override {
    return {{"order of samples", order_version},
            {"run.seed", std::to_string(seed_)},
            {"data.shuffle", shuffle_ ? "true" : "false"},
            {"data.sequence_length", std::to_string(sequence_length())},
            {"tokens of the training split", std::to_string(train_.tokens())}};
  }

 private:
  std::int64_t window() const { return sequence_length() + 1; }

  // Of the run.
  std::int64_t number_of(std::int64_t step, std::int64_t sample) const {
    require(step > position_.step && sample >= 0 && global_batch_ > 0, "train_sample: before the position it was opened at");
    std::int64_t number = 0;
    if (__builtin_mul_overflow(step - 1 - position_.step, global_batch_, &number) ||
        __builtin_add_overflow(number, position_.samples + sample, &number)) {
      throw ConfigError(
          fmt::format("step {} with train.global_batch={} is beyond the last sample, number 2^63", step, global_batch_));
    }
    return number;
  }

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

  const std::uint64_t seed_;
  const bool shuffle_;
  const std::int64_t global_batch_;
  const SamplePosition position_;
  std::optional<WindowOrder> order_;
  std::vector<std::unique_ptr<TokenSource>> sources_, validation_sources_;
  Split train_, validation_;
};

class RandomDataset final : public Dataset {
 public:
  RandomDataset(const Config& config, std::int64_t vocab)
      : Dataset(config.data.sequence_length),
        random_(config.run.seed, "random tokens"),
        seed_(config.run.seed),
        vocab_(static_cast<std::uint64_t>(vocab)) {}

  std::int64_t train_tokens() const override { return 0; }
  std::int64_t validation_tokens() const override { return 0; }
  SampleOrder sample_order() const override {
    return {{"order of samples", "random tokens"},
            {"run.seed", std::to_string(seed_)},
            {"data.sequence_length", std::to_string(sequence_length())},
            {"model.vocab", std::to_string(vocab_)}};
  }

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
  std::uint64_t seed_, vocab_;
};

}  // namespace

std::shared_ptr<const Dataset> open_dataset(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab,
                                            SamplePosition position) {
  check_vocabulary(tokenizer, vocab);
  if (config.data.tokenizer == "random") return std::make_shared<RandomDataset>(config, vocab);
  return std::make_shared<FileDataset>(config, tokenizer, vocab, position);
}

std::unique_ptr<ValidationTokens> open_validation(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab) {
  check_vocabulary(tokenizer, vocab);
  if (config.data.tokenizer == "random")
    throw ConfigError({{"data.tokenizer", "random", "random tokens have no validation split", "", 0}});
  return std::make_unique<FileValidation>(config.data, tokenizer, vocab);
}

}  // namespace plait::data
