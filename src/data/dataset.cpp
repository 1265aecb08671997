#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "config/job_rules.h"
#include "core/error.h"
#include "core/file.h"
#include "core/format.h"
#include "core/philox.h"
#include "data/sample_order.h"
#include "data/token_shard.h"
#include "data/token_source.h"

namespace plait::data {
namespace {

// Changes whenever the windows under the same name, seed and sizes come in another order.
constexpr const char* order_version = "epochs, version 1";

// Share of the training files that is kept for validation.
double kept_fraction(const DataConfig& data) { return data.validation.empty() ? data.validation_fraction : 0.0; }

std::int64_t kept_tokens(const TokenSource& source, double fraction) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(source.tokens()) * fraction));
}

// False for matched files without samples of their own: empty ones, and those that are read together with a shard.
bool has_samples(const std::filesystem::path& path) {
  std::error_code ignored;
  return !is_shard_index(path) && !is_packed_tokenizer(path) && !std::filesystem::is_empty(path, ignored);
}

class FileValidation final : public ValidationTokens {
 public:
  FileValidation(const DataConfig& data, const Tokenizer& tokenizer, std::int64_t vocab) : documents_(data.documents) {
    const bool own_files = !data.validation.empty();
    const double fraction = own_files ? 1.0 : kept_fraction(data);
    const auto add = [&](const std::vector<std::string>& globs, const std::string& key) {
      for (std::unique_ptr<TokenSource>& file : open_sources(globs, key, {tokenizer, vocab, data})) {
        const std::int64_t kept = kept_tokens(*file, fraction);
        split_.add(*file, file->tokens() - kept, kept);
        files_.push_back(std::move(file));
      }
    };
    if (own_files) {
      add(data.validation, "data.validation");
    } else {
      for (const DataSourceConfig& source : data.training_sources()) add(source.files, data.training_key());
    }
    if (split_.tokens() < 2) {
      throw ConfigError(
          {{own_files ? "data.validation" : "data.validation_fraction", own_files ? "" : fmt::format("{}", fraction),
            fmt::format("the validation split has {} tokens, must be at least 2", split_.tokens()), "", 0}});
    }
  }

  std::int64_t tokens() const override { return split_.tokens(); }
  void read(std::int64_t first, const SampleSpans& out) const override { read_sample(split_, first, documents_, out); }

 private:
  const Documents documents_;
  std::vector<std::unique_ptr<TokenSource>> files_;
  Split split_;
};

void check_spans(const SampleSpans& out, std::int64_t sequence_length) {
  require(static_cast<std::int64_t>(out.tokens.size()) == sequence_length && out.tokens.size() == out.targets.size() &&
              (out.starts.empty() || out.starts.size() == out.tokens.size()),
          "Dataset: a sample has sequence_length tokens and targets, and starts or none");
}

constexpr std::int64_t last_sample = std::int64_t{1} << 62;

std::string too_short(const std::string& name, const Split& split, std::int64_t window) {
  return fmt::format("the {} split has {} tokens, must be at least data.sequence_length + 1 = {}", name, split.tokens(),
                     window);
}

// One source of the training samples.
struct TrainingSource {
  std::string globs;
  double weight = 1;
  std::vector<std::unique_ptr<TokenSource>> files;
  Split train, validation;  // of these files
  std::optional<WindowOrder> order;
};

class FileDataset final : public Dataset {
 public:
  FileDataset(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab, SamplePosition position)
      : Dataset(config.data.sequence_length),
        seed_(config.run.seed),
        shuffle_(config.data.shuffle),
        documents_(config.data.documents),
        global_batch_(config.train.global_batch),
        position_(position) {
    const DataConfig& data = config.data;
    const bool own_files = !data.validation.empty();
    const double fraction = kept_fraction(data);
    for (const DataSourceConfig& source : data.training_sources())
      sources_.push_back(open(source, {tokenizer, vocab, data}, fraction));
    if (own_files) {
      validation_files_ = open_sources(data.validation, "data.validation", {tokenizer, vocab, data});
      for (const auto& file : validation_files_) own_validation_.add(*file, 0, file->tokens());
      validation_ = {&own_validation_};
    } else if (fraction > 0) {
      for (const TrainingSource& source : sources_) validation_.push_back(&source.validation);
    }
    check_sizes(data, own_files);
    std::vector<double> weights;
    for (std::size_t n = 0; n < sources_.size(); ++n) {
      TrainingSource& source = sources_[n];
      weights.push_back(source.weight);
      source.order.emplace(seed_, "source " + std::to_string(n), source.train.tokens(), sequence_length(), shuffle_);
    }
    blend_.emplace(weights);
    validation_blend_.emplace(own_files ? std::vector<double>{1} : weights);
  }

  std::int64_t train_tokens() const override {
    std::int64_t tokens = 0;
    for (const TrainingSource& source : sources_) tokens += source.train.tokens();
    return tokens;
  }
  std::int64_t validation_tokens() const override {
    std::int64_t tokens = 0;
    for (const Split* split : validation_) tokens += split->tokens();
    return tokens;
  }

  void train_sample(std::int64_t step, std::int64_t sample, const SampleSpans& out) const override {
    const Blend::Place place = blend_->at(number_of(step, sample));
    const TrainingSource& source = sources_[place.source];
    read_window(source.train, source.order->start(place.number), out);
  }

  void validation_sample(std::int64_t index, std::int64_t count, const SampleSpans& out) const override {
    require(!validation_.empty(), "validation_sample: there is no validation split");
    require(index >= 0 && index < count, "validation_sample: index outside the evaluation");
    const Blend::Place place = validation_blend_->at(index);
    const Split& split = *validation_[place.source];
    const std::int64_t of_source = validation_blend_->taken(count)[place.source];
    const std::int64_t last = split.tokens() - window();
    // number * last / (of_source - 1) without overflow for any split that fits on a disk.
    const double at = of_source > 1 ? static_cast<double>(place.number) / static_cast<double>(of_source - 1) : 0.0;
    read_window(split, std::min(last, static_cast<std::int64_t>(at * static_cast<double>(last))), out);
  }

  SampleOrder sample_order() const override {
    SampleOrder order = {{"order of samples", order_version},
                         {"run.seed", std::to_string(seed_)},
                         {"data.shuffle", shuffle_ ? "true" : "false"},
                         {"data.sequence_length", std::to_string(sequence_length())}};
    for (std::size_t n = 0; n < sources_.size(); ++n) {
      order.emplace_back(fmt::format("tokens of training source {}", n), std::to_string(sources_[n].train.tokens()));
      if (sources_.size() > 1)
        order.emplace_back(fmt::format("weight of training source {}", n), fmt::format("{}", sources_[n].weight));
    }
    return order;
  }

  std::vector<SourceUse> sources_used(std::int64_t samples) const override {
    std::vector<SourceUse> uses;
    const std::vector<std::int64_t> taken = blend_->taken(samples);
    for (std::size_t n = 0; n < sources_.size(); ++n) {
      const TrainingSource& source = sources_[n];
      uses.push_back({source.globs, source.train.tokens(), source.order->windows(), taken[n]});
    }
    return uses;
  }

 private:
  std::int64_t window() const { return sequence_length() + 1; }

  static TrainingSource open(const DataSourceConfig& config, const SourceOptions& options, double fraction) {
    TrainingSource source;
    source.globs = fmt::format("{}", fmt::join(config.files, ", "));
    source.weight = config.weight;
    source.files = open_sources(config.files, options.data.training_key(), options);
    for (const auto& file : source.files) {
      const std::int64_t kept = kept_tokens(*file, fraction);
      source.train.add(*file, 0, file->tokens() - kept);
      source.validation.add(*file, file->tokens() - kept, kept);
    }
    return source;
  }

  void check_sizes(const DataConfig& data, bool own_files) const {
    std::vector<ConfigProblem> problems;
    const auto of = [&](const TrainingSource& source) { return data.sources.empty() ? "" : " of " + source.globs; };
    for (const TrainingSource& source : sources_) {
      if (source.train.tokens() < window())
        problems.push_back({data.training_key(), "", too_short("training", source.train, window()) + of(source), "", 0});
    }
    for (std::size_t n = 0; n < validation_.size(); ++n) {
      if (validation_[n]->tokens() >= window()) continue;
      const std::string rule = too_short("validation", *validation_[n], window());
      if (own_files) {
        problems.push_back({"data.validation", "", rule, "", 0});
      } else {
        problems.push_back({"data.validation_fraction", fmt::format("{}", data.validation_fraction),
                            rule + of(sources_[n]) + "; 0 turns validation off", "", 0});
      }
    }
    if (!problems.empty()) throw ConfigError(problems);
  }

  // The sample's number in the run.
  std::int64_t number_of(std::int64_t step, std::int64_t sample) const {
    require(step > position_.step && sample >= 0 && global_batch_ > 0, "train_sample: before the position it was opened at");
    std::int64_t number = 0;
    if (__builtin_mul_overflow(step - 1 - position_.step, global_batch_, &number) ||
        __builtin_add_overflow(number, position_.samples + sample, &number) || number >= last_sample) {
      throw ConfigError(
          fmt::format("step {} with train.global_batch={} is beyond the last sample, number 2^62", step, global_batch_));
    }
    return number;
  }

  void read_window(const Split& split, std::int64_t start, const SampleSpans& out) const {
    check_spans(out, sequence_length());
    read_sample(split, start, documents_, out);
  }

  const std::uint64_t seed_;
  const bool shuffle_;
  const Documents documents_;
  const std::int64_t global_batch_;
  const SamplePosition position_;
  std::vector<TrainingSource> sources_;
  std::optional<Blend> blend_, validation_blend_;
  std::vector<std::unique_ptr<TokenSource>> validation_files_;
  Split own_validation_;
  std::vector<const Split*> validation_;  // those of data.validation, or of each source
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
  std::vector<SourceUse> sources_used(std::int64_t) const override { return {}; }

  void train_sample(std::int64_t step, std::int64_t sample, const SampleSpans& out) const override {
    check_spans(out, sequence_length());
    const std::uint64_t first = static_cast<std::uint64_t>(sample) * (out.tokens.size() + 1);
    const auto token = [&](std::size_t i) {
      return static_cast<std::int32_t>(random_.below(vocab_, first + i, static_cast<std::uint64_t>(step)));
    };
    for (std::size_t i = 0; i < out.tokens.size(); ++i) out.tokens[i] = token(i);
    std::copy(out.tokens.begin() + 1, out.tokens.end(), out.targets.begin());
    out.targets.back() = token(out.tokens.size());
    std::ranges::fill(out.starts, 0);
  }

  void validation_sample(std::int64_t, std::int64_t, const SampleSpans&) const override {
    throw InternalError("random tokens have no validation split");
  }

 private:
  Random random_;
  std::uint64_t seed_, vocab_;
};

}  // namespace

std::shared_ptr<const Dataset> open_dataset(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab,
                                            SamplePosition position) {
  require_rules({.vocab = vocab, .tokenizer_vocab = tokenizer.vocab()});
  if (config.data.tokenizer == "random") return std::make_shared<RandomDataset>(config, vocab);
  return std::make_shared<FileDataset>(config, tokenizer, vocab, position);
}

std::string trained_validation_warning(const DataConfig& data) {
  if (data.validation.empty() || data.tokenizer == "random") return "";
  std::set<FileIdentity> trained;
  for (const MatchedFile& file : match_files(data.training_files(), data.training_key())) {
    if (const auto identity = identity_at(file.path)) trained.insert(*identity);
  }
  std::vector<std::filesystem::path> both;
  for (const MatchedFile& file : match_files(data.validation, "data.validation")) {
    const auto identity = identity_at(file.path);
    if (identity && trained.contains(*identity) && has_samples(file.path)) both.push_back(file.path);
  }
  if (both.empty()) return "";
  return fmt::format(
      "warning: {} matches {} of data.validation too, {}{}: the validation loss is then of text that is trained on; move such "
      "files elsewhere, or name those to train on more narrowly",
      data.training_key(), plural(both.size(), "file"), both.size() > 1 ? "first " : "", both.front().string());
}

std::unique_ptr<ValidationTokens> open_validation(const Config& config, const Tokenizer& tokenizer, std::int64_t vocab) {
  require_rules({.vocab = vocab, .tokenizer_vocab = tokenizer.vocab()});
  if (config.data.tokenizer == "random")
    throw ConfigError({{"data.tokenizer", "random", "random tokens have no validation split", "", 0}});
  return std::make_unique<FileValidation>(config.data, tokenizer, vocab);
}

}  // namespace plait::data
