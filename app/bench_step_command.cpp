// plait bench step [...]
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "bench/step_benchmark.h"
#include "bench_commands.h"
#include "comm/word.h"
#include "config/config.h"
#include "config/schema.h"
#include "core/device.h"
#include "core/error.h"
#include "core/format.h"
#include "core/limits.h"
#include "core/task_progress.h"
#include "core/terminal.h"
#include "interop/trained_model.h"
#include "parallel/ledger_json.h"
#include "train/report/ledger_text.h"
#include "usage.h"

namespace plait {
namespace {

struct StepOptions {
  std::string config, model;
  std::vector<std::string> set;
  std::int64_t batch = 8, micro_batches = 1, sequence = 1024, ranks = 0, zero = 0;
  bench::StepBenchmarkRequest request;
  bool json = false;
};

Config configuration(const StepOptions& o) {
  if (o.config.empty() == o.model.empty()) throw ConfigError("bench step: give either a configuration file or --model PRESET");
  if (!o.config.empty()) return load_config(o.config, o.set, interop::read_model_directory);
  const std::int64_t data = o.ranks > 0 ? o.ranks : std::max(1, cuda_device_count());
  // Random tokens have no vocabulary of their own: if the preset leaves it to the tokenizer it is that of bytes.
  const bool has_vocab = std::ranges::any_of(
      config::presets(), [&](const config::Preset& preset) { return preset.name == o.model && !preset.model.vocab.is_auto(); });
  std::vector<std::string> set = {"model.preset=" + config::yaml_text(o.model),
                                  "data.tokenizer=random",
                                  fmt::format("data.sequence_length={}", o.sequence),
                                  "train.steps=1000",
                                  fmt::format("train.global_batch={}", o.batch * o.micro_batches * data),
                                  fmt::format("train.micro_batch={}", o.batch),
                                  fmt::format("{}={}", axis_key(rest_axis), data),
                                  fmt::format("parallel.zero={}", o.zero),
                                  fmt::format("launch.ranks={}", data)};
  if (!has_vocab) set.push_back("model.vocab=256");
  set.insert(set.end(), o.set.begin(), o.set.end());
  return parse_config("run: {name: bench}", set, "bench step");
}

// Shows enough digits for small models too.
std::string tflops_text(double tflops) { return fmt::format("{:.{}f} TFLOP/s", tflops, tflops < 1 ? 4 : 1); }

void print(const nlohmann::ordered_json& r) {
  std::string layout;
  AxisSet::all().for_each([&](Axis axis) {
    layout += fmt::format("{}{} {}", layout.empty() ? "" : " × ", to_string(axis), r["layout"][to_string(axis)].get<int>());
    if (axis == stage_axis) layout += fmt::format(" ({})", r["schedule"].get<std::string>());
  });
  const int width = terminal_width(stdout);
  const auto print_folded = [&](const std::string& line) { fmt::print("{}\n", folded(line, width, 16)); };
  print_folded(fmt::format("{} on {} × {}: {}, zero {}", r["model"].get<std::string>(), r["ranks"].get<int>(),
                           r["device"].get<std::string>(), layout, r["zero"].get<int>()));
  if (r.contains("alone"))
    print_folded(fmt::format("  alone         rank {} on one device, with copies of its own data for the others'",
                             r["alone"].get<int>()));
  print_folded(fmt::format("  batch         {} of {} of {} per data-parallel rank",
                           plural(r["micro_batches"].get<int>(), "micro-batch"),
                           plural(r["micro_batch"].get<int>(), "sequence"), plural(r["sequence_length"].get<int>(), "token")));
  fmt::print("  step          {:.2f} ms (median; {:.2f} to {:.2f})\n", r["step_ms"]["median"].get<double>(),
             r["step_ms"]["min"].get<double>(), r["step_ms"]["max"].get<double>());
  if (r.contains("predicted")) {
    const double predicted = r["predicted"]["step_ms"].get<double>();
    print_folded(fmt::format("  predicted     {:.2f} ms ({:+.1f} %), from {}", predicted,
                             100 * (predicted / r["step_ms"]["median"].get<double>() - 1),
                             r["predicted"]["machine"].get<std::string>()));
  }
  fmt::print("  throughput    {:.0f} tokens/s, {} per device", r["tokens_per_second"].get<double>(),
             tflops_text(r["tflops_per_gpu"].get<double>()));
  if (r.contains("mfu")) fmt::print(", MFU {:.1f} %", 100 * r["mfu"].get<double>());
  fmt::print("\n  exposed       {:.3f} ms of communication per step\n", r["exposed_comm_ms"].get<double>());
  if (r.contains("launch")) print_folded("  launch        " + r["launch"].get<std::string>());
  const double on_device = r["memory"]["device_bytes"].get<double>();  // 0: unknown for CPUs
  fmt::print("  memory        {} planned{}\n", format_bytes(r["memory"]["planned_bytes"].get<double>(), 2),
             on_device > 0 ? ", " + format_bytes(on_device, 2) + " on the device" : "");
  const auto ledgers = r["ledgers"].get<std::vector<parallel::Ledger>>();
  fmt::print("  ledger        where the time of a step went, mean of all steps measured:\n{}",
             indented(train::ledger_table(ledgers).text(width - 4)));
  if (ledgers.size() > 1) {
    const int worst = train::worst_rank(ledgers);
    print_folded(
        fmt::format("  worst         rank {}: {}", worst, train::ledger_line(ledgers[static_cast<std::size_t>(worst)])));
  }
  for (const auto& bound : r["exceeded_bounds"]) print_folded("  EXCEEDED      " + bound["text"].get<std::string>());
  if (!r.contains("breakdown")) return;
  fmt::print("{}\n",
             folded("  one step with every instruction timed by itself (streams overlap, so this does not add up to a step):",
                    width, 4));
  for (const auto& row : r["breakdown"]) {
    fmt::print("    {:<28} {:>4} × {:>9.3f} ms in all\n", row["instruction"].get<std::string>(), row["count"].get<int>(),
               row["ms"].get<double>());
  }
}

}  // namespace

void add_bench_step_command(CLI::App& bench, int& status, int argc, char** argv) {
  CLI::App* step = bench.add_subcommand("step", "Time the training step of a model or configuration");
  auto o = std::make_shared<StepOptions>();
  step->add_option("CONFIG,--config", o->config, "Configuration (YAML)");
  CLI::Option* const model = step->add_option("--model", o->model, "Model preset, on random tokens");
  step->add_option("--batch", o->batch, "With --model: sequences per micro-batch")
      ->capture_default_str()
      ->check(whole_number_in(1, limits::sequences.most))
      ->needs(model);
  step->add_option("--micro-batches", o->micro_batches, "With --model: micro-batches per rank and step")
      ->capture_default_str()
      ->check(whole_number_in(1, limits::passes))
      ->needs(model);
  step->add_option("--sequence", o->sequence, "With --model: tokens per sequence")
      ->capture_default_str()
      ->check(whole_number_in(1, limits::sequence.most))
      ->needs(model);
  step->add_option("--ranks", o->ranks, "With --model: data-parallel ranks; 0: all GPUs")
      ->capture_default_str()
      ->check(whole_number_in(0, limits::ranks.most))
      ->needs(model);
  step->add_option("--zero", o->zero, "With --model: 1 shards the optimizer")
      ->capture_default_str()
      ->check(whole_number(o->zero, 0))
      ->needs(model);
  step->add_option("--set", o->set, "Override a configuration value (repeatable)")->type_name("PATH=VALUE");
  step->add_option("--steps", o->request.steps, "Steps measured")
      ->capture_default_str()
      ->check(whole_number(o->request.steps, 1));
  step->add_option("--warmup", o->request.warmup, "Steps before those, not measured")
      ->capture_default_str()
      ->check(whole_number(o->request.warmup, 1));
  step->add_flag("--breakdown", o->request.breakdown, "Add a table of time by kind of instruction");
  step->add_option("--alone", o->request.alone,
                   "Only this rank of the layout, on one device: collectives and messages copy its own data instead of "
                   "others'. What the rank would reach if nobody kept it waiting")
      ->check(whole_number(o->request.alone, 0));
  step->add_flag("--json", o->json, "One JSON document on stdout");
  step->add_flag("--raw", o->request.raw, "With --json: every step's time and every rank's memory too")->needs("--json");
  step->callback([o, &status, argc, argv] {
    o->request.config = configuration(*o);
    o->request.argv.assign(argv, argv + argc);
    std::optional<TaskProgress> progress;  // on rank 0
    // A study keeps stderr, and takes plait's first line there as the reason why a point failed.
    if (!o->request.raw) o->request.progress = progress_from_first_call(progress, "measuring");
    status = bench::benchmark_step(o->request, [&](const nlohmann::ordered_json& result) {
      progress.reset();
      if (o->json) {
        std::cout << result.dump(2) << '\n';
      } else {
        print(result);
      }
    });
  });
}

}  // namespace plait
