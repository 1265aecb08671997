#include "train/evaluation.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <numeric>
#include <optional>
#include <utility>

#include "checkpoint/safetensors.h"
#include "checkpoint/weights_reader.h"
#include "core/error.h"
#include "core/file.h"
#include "core/format.h"
#include "data/tokenizer.h"
#include "interop/foreign_weights.h"
#include "interop/trained_model.h"
#include "launch/launch.h"
#include "train/batch_sources.h"
#include "train/initial_weights.h"
#include "train/session.h"
#include "train/training_checkpoint.h"

namespace plait::train {
namespace {

namespace fs = std::filesystem;

// Tokens whose losses are read back together.
constexpr std::int64_t tokens_at_once = std::int64_t{1} << 20;
// Elements of logits on the host at once.
constexpr std::int64_t logits_at_once = std::int64_t{1} << 20;

// Micro-batch n of this rank holds windows (or sequences) [first, first + micro_batch) of the whole.
std::int64_t first_of(const parallel::RankPlan& plan, std::int64_t n) { return batch_shape(plan).first_sample(n); }

std::int64_t rounds_for(const parallel::RankPlan& plan, std::int64_t rows) {
  const std::int64_t at_once = plan.sizes.micro_batch.batch * plan.layout.size(batch_axes);
  return (rows + at_once - 1) / at_once;
}

// Every row is one document.
void clear_starts(const data::HostBatchMemory& memory) {
  if (memory.starts) std::fill_n(memory.starts.as<std::int32_t>(), memory.starts.elements(), 0);
}

// One rank's part of the job.
class Evaluation {
 public:
  Evaluation(const EvaluationRequest& request, launch::RankContext& rank)
      : request_(request),
        config_(request.job.config),
        rank_(rank),
        tokenizer_(trained_tokenizer(config_, request.run_dir)),
        session_(config_, request.job.decision, tokenizer_->vocab(), rank),
        meeting_(rank.meeting("evaluation", group_options(config_, rank.device).timeout)),
        host_memory_(rank.device) {}

  template <typename Work>
  auto run(Work&& work) {
    return session_.run([&] {
      all_finish("loaded", [&] {
        const std::unique_ptr<checkpoint::WeightsReader> weights = interop::open_weights(request_.checkpoint);
        synchronize_load(session_.interpreter(), *weights, checkpoint::Restored::weights);
        step_ = weights->step();
      });
      return work();
    });
  }

  // Called on rank 0.
  std::optional<DataSetLoss> data_set_loss() {
    std::unique_ptr<data::ValidationTokens> tokens;
    all_finish("data", [&] { tokens = data::open_validation(config_, *tokenizer_, plan().sizes.shape.vocab); });
    const Windows windows(tokens->tokens(), config_.data.sequence_length);
    const std::int64_t rounds = rounds_for(plan(), windows.count());
    std::int64_t counted = 0;  // targets counted by this rank
    FilledBatches batches(host_memory_, plan(), [&](std::int64_t n, const data::HostBatchMemory& memory) {
      tell_progress(n, rounds);
      for (std::int64_t i = 0; i < plan().sizes.micro_batch.batch; ++i) {
        const auto row = [&](View view) {
          return view ? std::span(view.rows(i, 1).as<std::int32_t>(), static_cast<std::size_t>(view.shape[1]))
                      : std::span<std::int32_t>();
        };
        const data::SampleSpans out{row(memory.tokens), row(memory.targets), row(memory.starts)};
        read_window(*tokens, windows, first_of(plan(), n) + i, out);
        counted += std::ssize(out.targets) - std::ranges::count(out.targets, data::no_target);
      }
    });
    session_.interpreter().synchronize_warm_up();
    const std::int64_t at_once = std::max<std::int64_t>(1, tokens_at_once / plan().sizes.micro_batch.rows());
    double sum = 0;
    for (std::int64_t done = 0; done < rounds; done += at_once) {
      const std::int64_t count = std::min(at_once, rounds - done);
      const std::vector<double> losses = session_.interpreter().synchronize_token_losses(batches, static_cast<int>(count));
      sum = std::accumulate(losses.begin(), losses.end(), sum);  // losses of targets that do not count are 0
    }
    const std::vector<double> sums = meeting_.gather_on(0, "loss", sum);
    const std::vector<std::int64_t> counts = meeting_.gather_on(0, "tokens", plan().counts_loss() ? counted : 0);
    if (!rank_.is_main) return std::nullopt;
    DataSetLoss result{.step = step_, .windows = windows.count(), .tokens = 0, .loss = 0, .bytes = {}};
    result.tokens = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (result.tokens == 0) {
      throw ConfigError({{config_.data.validation.empty() ? "data.train" : "data.validation", "",
                          "no token of the validation split counts in the loss (data.chat_template)", "", 0}});
    }
    result.loss = std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(result.tokens);
    if (!std::isfinite(result.loss))
      throw Error(fmt::format("{}: its loss is {}", request_.checkpoint.string(), unsigned_nan(result.loss)));
    if (data::has_text(tokenizer_->kind())) result.bytes = count_bytes(*tokens, windows);
    return result;
  }

  void write_logits() {
    const File file = File::open_read(request_.tokens);
    const checkpoint::PlacedTensor tokens = checkpoint::read_safetensors_layout(file).tensors.front();
    const std::int64_t sequences = tokens.spec.shape[0], length = tokens.spec.shape[1], vocab = plan().sizes.shape.vocab;
    const std::int64_t batch = plan().sizes.micro_batch.batch;
    const auto read = [&](std::int64_t sequence, std::span<std::int32_t> out) {
      file.read_at(tokens.offset + static_cast<std::uint64_t>(sequence * length) * sizeof(std::int32_t), out.data(),
                   out.size() * sizeof(std::int32_t));
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (out[i] >= 0 && out[i] < vocab) continue;
        throw ConfigError({{request_.tokens.string(), std::to_string(out[i]),
                            fmt::format("token {} of sequence {} must be from 0 to {}", i, sequence, vocab - 1), "", 0}});
      }
    };
    if (rank_.is_main) {  // before the file exists
      std::vector<std::int32_t> one(static_cast<std::size_t>(length));
      for (std::int64_t sequence = 0; sequence < sequences; ++sequence) read(sequence, one);
    }
    const std::int64_t rounds = rounds_for(plan(), sequences);
    FilledBatches batches(host_memory_, plan(), [&](std::int64_t n, const data::HostBatchMemory& memory) {
      tell_progress(n, rounds);
      for (std::int64_t i = 0; i < batch; ++i) {
        const std::span<std::int32_t> row(memory.tokens.rows(i, 1).as<std::int32_t>(), static_cast<std::size_t>(length));
        std::ranges::fill(row, 0);
        if (const std::int64_t sequence = first_of(plan(), n) + i; sequence < sequences) read(sequence, row);
        std::fill_n(memory.targets.rows(i, 1).as<std::int32_t>(), length, 0);
      }
      clear_starts(memory);
    });
    session_.interpreter().synchronize_warm_up();
    const checkpoint::SafetensorsLayout layout =
        checkpoint::layout_safetensors({{"logits", DType::f32, {sequences, length, vocab}}});
    const fs::path finished = output_file(request_.logits), unfinished = finished.string() + ".part";
    std::optional<UnfinishedFile> ours;
    if (rank_.is_main) {
      const File made = File::create(unfinished);
      ours.emplace(unfinished);
      made.allocate(layout.file_bytes);
      made.write_at(0, layout.header.data(), layout.header.size());
    }
    meeting_.meet("made");
    File out = File::open_write(unfinished);
    for (std::int64_t n = 0; n < rounds; ++n) {
      const View logits = session_.interpreter().synchronize_logits(batches);
      if (logits) write_part(out, layout.tensors.front().offset, logits, first_of(plan(), n), sequences, length, vocab);
    }
    all_finish("written", [&] {
      out.sync();
      out.close();
    });
    if (rank_.is_main) rename_path(unfinished, finished);
  }

 private:
  const parallel::RankPlan& plan() { return session_.plan(); }

  // Runs work that lasts as long as this rank's disk needs. The other ranks wait for it.
  template <typename Work>
  void all_finish(const std::string& topic, Work&& work) {
    const auto busy = meeting_.busy();
    work();
    meeting_.meet(topic);
  }

  // Positions that predict nothing do not count, so any token will do there: later tokens do not change earlier results. They
  // continue the last document, as starts must ascend.
  static void read_window(const data::ValidationTokens& tokens, const Windows& windows, std::int64_t window,
                          const data::SampleSpans& out) {
    std::ranges::fill(out.tokens, 0);
    std::ranges::fill(out.targets, data::no_target);
    std::ranges::fill(out.starts, 0);
    const auto predicted = static_cast<std::size_t>(windows.predicted(window));
    const auto part = [&](std::span<std::int32_t> of) { return of.first(std::min(predicted, of.size())); };
    if (predicted == 0) return;
    tokens.read(windows.first(window), {part(out.tokens), part(out.targets), part(out.starts)});
    if (predicted < out.starts.size()) std::ranges::fill(out.starts.subspan(predicted), out.starts[predicted - 1]);
  }

  std::optional<std::int64_t> count_bytes(const data::ValidationTokens& tokens, const Windows& windows) const {
    std::int64_t bytes = 0;
    const data::TokenSet special = data::special_tokens(*tokenizer_);
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(config_.data.sequence_length)), targets(inputs);
    for (std::int64_t w = 0; w < windows.count(); ++w) {
      read_window(tokens, windows, w, {inputs, targets});
      const auto of_window = counted_bytes(*tokenizer_, special, inputs, targets);
      if (!of_window) return std::nullopt;
      bytes += *of_window;
    }
    return bytes;
  }

  // Leaves out the columns of the vocabulary's padding.
  void write_part(const File& out, std::uint64_t offset, View logits, std::int64_t first_sequence, std::int64_t sequences,
                  std::int64_t length, std::int64_t vocab) {
    const std::int64_t columns = logits.shape[1], first_column = plan().sizes.split.rank * columns;
    const std::int64_t kept = std::clamp<std::int64_t>(vocab - first_column, 0, columns);
    const std::int64_t rows = std::min(logits.shape[0], (sequences - first_sequence) * length);
    const std::int64_t at_once = std::max<std::int64_t>(1, logits_at_once / columns);
    std::vector<float> row_values(static_cast<std::size_t>(kept));
    for (std::int64_t done = 0; kept > 0 && done < rows; done += at_once) {
      const std::int64_t count = std::min(at_once, rows - done);
      const std::vector<double> values = session_.interpreter().synchronize_read(logits.rows(done, count));
      for (std::int64_t r = 0; r < count; ++r) {
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(r * columns), kept, row_values.begin());
        const std::int64_t element = (first_sequence * length + done + r) * vocab + first_column;
        out.write_at(offset + static_cast<std::uint64_t>(element) * sizeof(float), row_values.data(),
                     row_values.size() * sizeof(float));
      }
    }
  }

  void tell_progress(std::int64_t done, std::int64_t rounds) const {
    if (rank_.is_main) request_.progress(static_cast<double>(done) / static_cast<double>(rounds), "");
  }

  const EvaluationRequest& request_;
  const Config& config_;
  launch::RankContext& rank_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  Session session_;
  comm::Meeting meeting_;
  DeviceMemory host_memory_;
  std::int64_t step_ = 0;
};

}  // namespace

std::int64_t Windows::predicted(std::int64_t window) const {
  return std::clamp<std::int64_t>(tokens_ - 1 - first(window), 0, length_);
}

std::optional<std::int64_t> counted_bytes(const data::Tokenizer& tokenizer, const data::TokenSet& special,
                                          std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  if (const auto unknown = tokenizer.unknown(); unknown && std::ranges::find(targets, *unknown) != targets.end())
    return std::nullopt;
  const auto size_of_text = [&](std::span<const std::int32_t> text) {
    auto size = static_cast<std::int64_t>(tokenizer.decode(text).size());
    for (const std::int32_t& token : text) {
      if (special.contains(token)) size -= static_cast<std::int64_t>(tokenizer.decode(std::span(&token, 1)).size());
    }
    return size;
  };
  std::int64_t bytes = 0;
  std::vector<std::int32_t> run;
  for (std::size_t i = 0; i < targets.size();) {
    if (targets[i] == data::no_target) {
      ++i;
      continue;
    }
    run.assign(1, tokens[i]);
    while (i < targets.size() && targets[i] != data::no_target) run.push_back(targets[i++]);
    bytes += size_of_text(run) - size_of_text(std::span(run).first(1));
  }
  return bytes;
}

double DataSetLoss::perplexity() const { return std::exp(loss); }

std::optional<double> DataSetLoss::bits_per_byte() const {
  if (!bytes || *bytes <= 0) return std::nullopt;
  return loss * static_cast<double>(tokens) / std::numbers::ln2 / static_cast<double>(*bytes);
}

void to_json(nlohmann::ordered_json& json, const DataSetLoss& loss) {
  json = {{"step", loss.step},       {"windows", loss.windows},         {"tokens", loss.tokens},
          {"loss", loss.loss},       {"perplexity", loss.perplexity()}, {"bytes", nullptr},
          {"bits_per_byte", nullptr}};
  if (loss.bytes) json["bytes"] = *loss.bytes;
  if (const auto bits = loss.bits_per_byte()) json["bits_per_byte"] = *bits;
}

std::int64_t sequence_length_of(const fs::path& tokens) {
  const auto refuse = [&](const std::string& value, const std::string& rule) {
    throw ConfigError({{tokens.string(), value, rule, "", 0}});
  };
  const checkpoint::SafetensorsLayout layout = checkpoint::read_safetensors_layout(File::open_read(tokens));
  if (layout.tensors.empty() && layout.others.size() == 1 && layout.others.front().name == "tokens")
    refuse(layout.others.front().type, "`tokens` must be I32 [batch, sequence]: store it as int32");
  if (layout.tensors.size() != 1 || !layout.others.empty() || layout.tensors.front().spec.name != "tokens")
    refuse(layout.tensors.empty() ? "no tensor" : layout.tensors.front().spec.name, "must hold one tensor, called `tokens`");
  const checkpoint::TensorSpec& spec = layout.tensors.front().spec;
  if (spec.dtype != DType::i32 || spec.shape.size() != 2 || spec.elements() == 0)
    refuse(fmt::format("{} [{}]", to_string(spec.dtype), fmt::join(spec.shape, ", ")),
           "`tokens` must be I32 [batch, sequence]");
  return spec.shape[1];
}

int evaluate(const EvaluationRequest& request, const std::function<void(const DataSetLoss&)>& on_result) {
  const launch::LaunchPlan plan = launch::plan_launch(request.job.config, request.joined);
  if (!plan.this_rank && !plan.warning.empty()) request.note(plan.warning);
  return launch::launch(
      plan,
      [&](launch::RankContext& rank) {
        Evaluation evaluation(request, rank);
        if (!request.tokens.empty()) return evaluation.run([&] { evaluation.write_logits(); });
        if (const auto loss = evaluation.run([&] { return evaluation.data_set_loss(); })) on_result(*loss);
      },
      request.argv);
}

}  // namespace plait::train
