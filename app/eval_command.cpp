// plait eval WEIGHTS [--data FILES ...] [--tokens FILE --logits OUT] [--layout LAYOUT] [--json]
#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include "checkpoint/checkpoint_directory.h"
#include "commands.h"
#include "config/config.h"
#include "config/schedule_table.h"
#include "config/schema.h"
#include "core/error.h"
#include "core/format.h"
#include "core/message.h"
#include "core/task_progress.h"
#include "interop/foreign_weights.h"
#include "interop/trained_model.h"
#include "launch/agreement.h"
#include "launch/settled_job.h"
#include "train/evaluation.h"
#include "verify/layouts.h"

namespace plait {
namespace {

struct EvalOptions {
  std::string weights, tokens, logits, layout;
  std::vector<std::string> data, set;
  bool json = false;
};

// The value of the last override of `key`.
std::int64_t last_of(const std::vector<std::string>& overrides, std::string_view key, std::int64_t otherwise) {
  std::int64_t value = otherwise;
  for (const std::string& text : overrides) {
    if (!text.starts_with(std::string(key) + "=")) continue;
    const std::string given = text.substr(key.size() + 1);
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    if (error != std::errc() || end != given.data() + given.size() || value < 1)
      throw ConfigError({{std::string(key), given, "must be a number, at least 1, for plait eval", "", 0}});
  }
  return value;
}

// Evaluation passes one micro-batch at a time, so the schedule does not change the result.
void require_any_number(const ParallelConfig& parallel) {
  const Auto<ScheduleKind>& kind = parallel.schedule;
  if (parallel.size[stage_axis].value_or(1) <= 1 || kind.is_auto() || !schedule_row(kind.value()).in_rounds) return;
  throw ConfigError(
      {{"parallel.schedule", schedule_name(parallel),
        fmt::format("passes on a multiple of {}={} micro-batches, but plait eval does one at a time: "
                    "leave schedule and virtual_stages out of --layout, or take schedule=1f1b virtual_stages=1; the "
                    "result is the same",
                    axis_key(stage_axis), parallel.size[stage_axis].value()),
        "", 0}});
}

Config config_of(const EvalOptions& o, const std::filesystem::path& run) {
  const Config trained = interop::trained_config(run);
  std::vector<std::string> overrides = verify::serial_overrides();
  overrides.push_back("comm.p2p_pairs=[]");  // of the run's ranks, which may be more
  overrides.push_back("comm.braid=none");    // there is one pass, which has no partner
  overrides.push_back("train.micro_batch=" + std::to_string(trained.train.micro_batch.value_or(1)));
  // The table of positions keeps the rows it was trained with, regardless of the windows.
  if (trained.model.position == Position::learned) {
    const std::int64_t rows = trained.model.max_sequence.value_or(trained.data.sequence_length);
    overrides.push_back("model.max_sequence=" + std::to_string(rows));
  }
  if (!o.layout.empty()) {
    const std::vector<std::string> layout = verify::parse_layout(o.layout, "--layout").overrides;
    overrides.insert(overrides.end(), layout.begin(), layout.end());
  }
  if (!o.data.empty()) {
    std::string list;
    for (const std::string& file : o.data) list += (list.empty() ? "" : ", ") + config::yaml_text(file);
    overrides.push_back("data.validation=[" + list + "]");
  }
  if (!o.tokens.empty()) {
    if (std::error_code missing; std::filesystem::equivalent(o.tokens, o.logits, missing))
      throw ConfigError({{"--logits", o.logits, "must be another file than that of --tokens, which it would replace", "", 0}});
    overrides.push_back("data.sequence_length=" + std::to_string(train::sequence_length_of(o.tokens)));
  }
  overrides.insert(overrides.end(), o.set.begin(), o.set.end());
  std::int64_t batch = last_of(overrides, "train.micro_batch", 1);
  batch_axes.for_each([&](Axis axis) { batch *= last_of(overrides, axis_key(axis), 1); });
  overrides.push_back("train.global_batch=" + std::to_string(batch));
  try {
    Config config = interop::trained_config(run, overrides);
    require_any_number(config.parallel);
    return config;
  } catch (const ConfigError& error) {
    // The message for a file's number of micro-batches would advise changing train.global_batch.
    std::vector<ConfigProblem> problems = error.problems();
    for (ConfigProblem& problem : problems) {
      if (problem.path == "parallel.schedule" && problem.value.starts_with("{file:"))
        problem.rule +=
            "; but plait eval does one micro-batch at a time: leave the file out of --layout, the result is the same";
    }
    if (problems.empty()) throw;
    throw ConfigError(std::move(problems));
  }
}

void print(const train::DataSetLoss& loss) {
  fmt::print("loss {:.4f} nats per token, perplexity {:.3f}", loss.loss, loss.perplexity());
  if (const auto bits = loss.bits_per_byte()) fmt::print(", {:.4f} bits per byte", *bits);
  fmt::print("\n{} in {}, step {}\n", plural(loss.tokens, "token"), plural(loss.windows, "window"), loss.step);
}

}  // namespace

void add_eval_command(CLI::App& app, int& status, int argc, char** argv) {
  auto o = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand("eval", "Loss of a trained model over a data set, or its logits of given tokens");
  command
      ->add_option("WEIGHTS", o->weights,
                   "A run directory, whose newest checkpoint is taken, a checkpoint, or a model of Hugging Face transformers")
      ->required();
  CLI::Option* data = command->add_option("--data", o->data, "Files, as data.validation takes them; by default the run's own")
                          ->type_name("FILES");
  CLI::Option* tokens =
      command->add_option("--tokens", o->tokens, "safetensors with `tokens`, int32 [batch, sequence]: write logits instead")
          ->type_name("FILE")
          ->excludes(data);
  CLI::Option* logits =
      command->add_option("--logits", o->logits, "Where to: safetensors with `logits`, float32 [batch, sequence, vocabulary]")
          ->type_name("FILE")
          ->needs(tokens);
  tokens->needs(logits);
  command->add_option("--layout", o->layout, "Ranks to use: \"pipeline=2 tensor=2\" (keys of `parallel`); one by default")
      ->type_name("LAYOUT");
  command->add_option("--set", o->set, "Override a value of the run's configuration (repeatable)")->type_name("PATH=VALUE");
  command->add_flag("--json", o->json, "One JSON document on stdout")->excludes(tokens);
  command->callback([o, &status, argc, argv] {
    const checkpoint::FoundCheckpoint found = interop::find_weights(o->weights);
    auto [job, joined, passed] =
        launch::begin_job([&] { return parallel::DecidedConfig{.config = config_of(*o, found.directory), .decision = {}}; });
    train::EvaluationRequest request{.job = std::move(job),
                                     .checkpoint = found.directory,
                                     .run_dir = found.run_dir,
                                     .tokens = o->tokens,
                                     .logits = o->logits,
                                     .argv = std::vector<std::string>(argv, argv + argc),
                                     .joined = std::move(joined)};
    request.note = message_to_stderr;
    std::optional<TaskProgress> progress;  // on rank 0
    request.progress = progress_from_first_call(progress, "evaluating");
    status = train::evaluate(request, [&](const train::DataSetLoss& loss) {
      progress.reset();
      if (!o->json) return print(loss);
      std::cout << nlohmann::ordered_json(loss).dump(2) << '\n';
    });
  });
}

}  // namespace plait
