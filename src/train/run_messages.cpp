#include "train/run_messages.h"

#include <spdlog/fmt/fmt.h>

#include <cstdio>

#include "core/error.h"
#include "core/format.h"
#include "core/message.h"
#include "train/report/ledger_text.h"
#include "train/sampler.h"
#include "train/training_checkpoint.h"

namespace plait::train {

std::string command_line(const std::vector<std::string>& argv) {
  if (argv.empty()) return "plait train";
  std::string text;
  for (const std::string& word : argv) text += (text.empty() ? "" : " ") + shell_quoted(word);
  return text;
}

std::string command_to_fork(const std::filesystem::path& checkpoint) {
  return command_line({"plait", "train", "--init-from", checkpoint.string(), "--with-optimizer"});
}

std::string command_to_go_on(const TrainRequest& request, const std::filesystem::path& run_dir) {
  if (request.resume.empty() || request.argv.empty()) {
    return command_line({request.argv.empty() ? "plait" : request.argv.front(), "train", "--resume", run_dir.string()});
  }
  const std::string option = "--resume";
  std::vector<std::string> argv = request.argv;
  for (std::size_t i = 0; i < argv.size(); ++i) {
    if (argv[i] == option && i + 1 < argv.size()) argv[i + 1] = run_dir.string();
    if (argv[i].starts_with(option + "=")) argv[i] = option + "=" + run_dir.string();
  }
  return command_line(argv);
}

void require_sample(const TrainConfig& train, const data::Tokenizer& tokenizer) {
  if (train.sample_tokens == 0) return;
  if (!data::has_text(tokenizer.kind())) {
    throw ConfigError(
        {{"train.sample_tokens", std::to_string(train.sample_tokens),
          fmt::format("must be 0 with data.tokenizer={}, which knows the text of no token", tokenizer.kind()), "", 0}});
  }
  prompt_tokens(tokenizer, train.sample_prompt, "train.sample_prompt");
}

std::string work_at_risk(const Config& config, const RunStart& start) {
  if (start.step >= config.train.steps) return "";
  const std::int64_t every = config.checkpoint.every;
  if (every > 0 && (start.step / every + 1) * every < config.train.steps) return "";
  const bool final = config.checkpoint.final;
  const std::string lost = start.resumed ? fmt::format("what it does after step {} is lost", start.step) : "it is lost";
  return fmt::format("no checkpoint {} (checkpoint.every: {}{}): if this run is killed {}; Ctrl-C, SIGTERM and SIGUSR1 save it",
                     final           ? "before the last step"
                     : start.resumed ? "any more"
                                     : "at all",
                     every, final ? "" : ", checkpoint.final: false", lost);
}

std::string stopped_text(const TrainRequest& request, const RunStart& start, std::int64_t step, const std::string& reason) {
  const std::int64_t steps = request.job.config.train.steps;
  const bool has_steps = step > start.step;
  const std::string where = has_steps       ? fmt::format("after step {} of {}", step, steps)
                            : start.resumed ? fmt::format("before step {} of {}, nothing is lost", step + 1, steps)
                                            : "before the first step, with nothing to keep";
  const bool can_go_on = has_steps || start.resumed;
  return fmt::format("stopped by {} {}; {}: {}", reason, where, can_go_on ? "go on with" : "start again with",
                     can_go_on ? command_to_go_on(request, start.run_dir) : command_line(request.argv));
}

std::string spent_text(const std::vector<parallel::Ledger>& ledgers, int steps, int width) {
  const int worst = worst_rank(ledgers);
  std::vector<int> shown = {0};
  if (worst > 0) shown.push_back(worst);
  return fmt::format("where the time of a step went, mean of {}, of rank 0{}:\n{}", plural(steps, "step"),
                     worst > 0 ? fmt::format(" and of rank {}, which lost most", worst) : " (no rank lost more)",
                     ledger_table(ledgers, shown).text(width));
}

void print_sample(const Config& config, const std::filesystem::path& run_dir, Device device) {
  if (!is_saved(config, config.train.steps)) {
    message_to_stderr("no sample (train.sample_tokens): it needs the last step's checkpoint, and checkpoint.final is false");
    return;
  }
  SampleRequest request{
      .weights = run_dir, .prompt = config.train.sample_prompt, .tokens = config.train.sample_tokens, .seed = config.run.seed};
  bool begun = false;
  const auto print = [&](const std::string& text) {
    if (!std::exchange(begun, true))
      fmt::print("\nsample, {} tokens after {:?}:\n", config.train.sample_tokens, config.train.sample_prompt);
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  // A model trained on many devices need not fit on one. The run is complete all the same.
  const auto say_none = [](const std::exception& error) {
    message_to_stderr(fmt::format("no sample (train.sample_tokens) by one device: {}", error.what()));
  };
  try {
    sample(request, device, print);
    fmt::print("\n");
  } catch (const OutOfMemoryError& error) {
    say_none(error);
  } catch (const ConfigError& error) {
    say_none(error);
  }
}

}  // namespace plait::train
