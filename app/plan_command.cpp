// plait plan CONFIG [--topology live|FILE] [--gpus N] [--device NAME] [--calibration FILE] [--top K] [--json [--programs]]
// [--grid [--width N]]
//                   [--trace FILE] [--schedule-csv FILE]
//                   [--set path=value ...]
// plait plan --accuracy RUN_DIR...
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <numeric>

#include "commands.h"
#include "config/config.h"
#include "core/error.h"
#include "core/file.h"
#include "core/format.h"
#include "core/limits.h"
#include "core/task_progress.h"
#include "core/terminal.h"
#include "core/text_table.h"
#include "data/tokenizer.h"
#include "interop/trained_model.h"
#include "parallel/job_plan.h"
#include "parallel/plan_json.h"
#include "parallel/program/program_grid.h"
#include "parallel/proof/validator.h"
#include "parallel/schedule/schedule_timeline.h"
#include "plan/report.h"
#include "plan/simulation/simulated_trace.h"
#include "site/site_planning.h"
#include "train/report/accuracy.h"
#include "usage.h"

namespace plait {
namespace {

// Above this, tables have a row per pipeline rank.
constexpr int most_rows = 64;
constexpr int most_traced = 16;

struct PlanOptions {
  std::string config;
  std::vector<std::string> set, accuracy;
  site::PlanningWish wish;
  std::string trace, schedule_csv;
  int width = 0;
  bool json = false, programs = false, grid = false;
};

struct Plan {
  site::SitedPlan sited;
  parallel::ProgramSet programs;  // of all ranks
  const std::vector<parallel::RankPlan>& stages() const { return sited.job.stages; }
};

Plan make_plan(const PlanOptions& o) {
  const Config config = load_config(o.config, o.set, interop::read_model_directory);
  const std::int64_t vocab = data::vocabulary(config);
  TaskProgress progress("planning");
  site::PlanningWish wish = o.wish;
  wish.progress = progress.callback();
  Plan plan{.sited = plan_on_site(config, parallel::Decision{}, vocab, wish), .programs = {}};
  plan.programs = parallel::training_programs(plan.stages());
  parallel::require_valid(plan.programs);
  parallel::require_valid(parallel::evaluation_programs(plan.stages()));
  return plan;
}

std::string segments_text(const parallel::RankPlan& plan) {
  std::string text;
  for (const parallel::Chunk& c : plan.train.chunks) {
    text += text.empty() ? "" : " + ";
    text += c.end_segment - c.first_segment == 1 ? fmt::format("{}", c.first_segment)
                                                 : fmt::format("{}-{}", c.first_segment, c.last_segment());
  }
  return text;
}

void add_row(TextTable& table, const std::string& ranks, const std::string& device, const std::string& place,
             const parallel::RankPlan& p) {
  const auto bytes = [](std::size_t n) { return format_bytes(static_cast<double>(n)); };
  std::int64_t parameters = 0;
  for (const model::Parameter& parameter : p.parameters) parameters += parameter.stored;
  std::size_t activations = 0;
  for (const auto& [kind, size] : p.memory.bytes_by_kind()) activations += kind == "activations" ? size : 0;
  table.add({ranks, device, place, segments_text(p), format_count(static_cast<double>(parameters)),
             fmt::format("{}", parallel::peak_in_flight(p.schedule, p.coordinates()[stage_axis])),
             bytes(p.memory.total_bytes()), bytes(activations)});
}

// make(axis) of all axes in the order of ranks.
template <typename Make>
std::string axes_joined(Make&& make) {
  std::string text;
  AxisSet::all().for_each([&](Axis axis) { text += (text.empty() ? "" : " ") + make(axis); });
  return text;
}

void print(const Plan& plan) {
  const int width = terminal_width(stdout);
  const parallel::RankPlan& first = plan.stages().front();
  const parallel::Layout& layout = first.layout;
  std::string head = fmt::format("{}: {}, zero {}\n", plural(layout.ranks(), "rank"), layout.to_string(), first.zero);
  head += fmt::format(
      "schedule {}: {} of {} per data-parallel rank, {}, bubble {:.1f} % if forward and both parts of backward cost the same\n",
      first.schedule.name,
      first.schedule.halves ? fmt::format("{} halves of micro-batches", first.micro_batches)
                            : plural(first.micro_batches, "micro-batch"),
      plural(first.sizes.micro_batch.batch, "sequence"), plural(first.schedule.stages.count(), "stage"),
      100 * parallel::simulate(first.schedule).bubble_fraction());
  if (layout.size(segment_axis) > 1) head += fmt::format("braids: {}: {}\n", to_string(first.braids.way), first.braids.reason);
  head += fmt::format("segments: 0 is the embedding, then attention and MLP of each block in turn, {} is the head\n\n",
                      first.sizes.shape.head_segment());
  fmt::print("{}", folded(head, width, 4));
  TextTable table({{layout.ranks() > most_rows ? "ranks" : "rank"},
                   {"device", Align::left},
                   {axes_joined([](Axis axis) { return to_string(axis); })},
                   {"segments", Align::left},
                   {"parameters"},
                   {"in flight"},
                   {"memory"},
                   {"activations"}});
  const int per_stage = layout.ranks() / layout.size(stage_axis);
  for (int stage = 0; stage < layout.size(stage_axis) && layout.ranks() > most_rows; ++stage) {
    const parallel::RankPlan& p = plan.stages()[static_cast<std::size_t>(stage)];
    const auto all = [&](Axis axis) { return layout.size(axis) > 1 ? fmt::format("0-{}", layout.size(axis) - 1) : "0"; };
    add_row(table, fmt::format("{}-{}", stage * per_stage, (stage + 1) * per_stage - 1), "",
            axes_joined([&](Axis axis) { return axis == stage_axis ? std::to_string(stage) : all(axis); }), p);
  }
  for (int rank = 0; rank < layout.ranks() && layout.ranks() <= most_rows; ++rank) {
    const parallel::Coordinates c = layout.coordinates(rank);
    add_row(table, std::to_string(rank), plan.sited.context.devices[static_cast<std::size_t>(rank)],
            axes_joined([&](Axis axis) { return std::to_string(c[axis]); }),
            plan.stages()[static_cast<std::size_t>(c[stage_axis])]);
  }
  fmt::print("{}\n{}", table.text(width), folded(text_of(plan.sited.job, plan.sited.machine, plan.sited.context), width, 4));
}

void print_grid(const Plan& plan, int width) {
  const bool exchanges = plan.stages().front().layout.size(segment_axis) > 1;
  fmt::print("\n{}", parallel::draw_programs(plan.programs,
                                             {.colour = ::isatty(STDOUT_FILENO) == 1, .exchanges = exchanges, .width = width}));
  if (exchanges)
    fmt::print(
        "{}\n",
        folded("x5!2: five exchanges between tensor-parallel ranks, two of them with nothing to compute meanwhile", width, 4));
}

nlohmann::ordered_json json_of(const Plan& plan, bool programs) {
  auto json = parallel::plan_document(plan.stages(), plan.sited.context.devices,
                                      to_json(plan.sited.job, plan.sited.machine, plan.sited.context));
  if (programs) {
    json["programs"] = nlohmann::ordered_json::array();
    for (int rank = 0; rank < plan.stages().front().layout.ranks(); ++rank)
      json["programs"].push_back(parallel::to_json(plan.programs.program(rank)));
  }
  return json;
}

// For all ranks, or for one per pipeline coordinate if a browser could not show all.
void write_trace(const Plan& plan, const std::string& file) {
  const site::SitedPlan& sited = plan.sited;
  const plan::Site site{.machine = sited.machine, .fabric = sited.fabric.get(), .kind = sited.kind};
  const parallel::Layout& layout = plan.stages().front().layout;
  std::vector<int> ranks(static_cast<std::size_t>(layout.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (layout.ranks() > most_traced) ranks = plan::one_rank_per_stage(layout);
  const auto device_of = [&](int rank) { return sited.context.devices.at(static_cast<std::size_t>(rank)); };
  write_output(file, plan::simulated_trace(plan.programs, simulate_choice(sited.job, site), ranks, device_of));
}

void show_accuracy(const PlanOptions& o) {
  std::vector<train::Accuracy> runs;
  for (const std::string& run : o.accuracy) runs.push_back(train::read_accuracy(run));
  if (o.json) {
    std::cout << accuracy_json(runs).dump(2) << '\n';
  } else {
    fmt::print("{}", accuracy_table(runs, terminal_width(stdout)));
  }
}

}  // namespace

void add_plan_command(CLI::App& app, int& status) {
  auto o = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand(
      "plan", "Decide and show how a configuration would run: layout, placement, predicted time, memory. Needs no GPU");
  command->add_option("CONFIG", o->config, "Configuration (YAML)");
  command->add_option("--set", o->set, "Override a value: --set parallel.pipeline=4 (repeatable)")->type_name("PATH=VALUE");
  command->add_option("--gpus", o->wish.gpus, "Plan for this many GPUs, whatever this machine has")
      ->check(whole_number_in(1, limits::ranks.most));
  command->add_option("--topology", o->wish.topology,
                      "live, or a file that `plait topo --from` reads (default: the configuration's placement.topology)");
  command->add_option("--device", o->wish.device,
                      "Nominal figures of this device (h200, a100, rtx4090, cpu, ...) instead of this machine's");
  command->add_option("--calibration", o->wish.calibration,
                      "Figures measured by `plait bench calibrate` instead of nominal ones");
  command->add_option("--top", o->wish.top, "Show this many alternatives")->check(whole_number(o->wish.top, 0));
  command->add_option("--accuracy", o->accuracy, "Show how well the finished runs in these directories were predicted");
  command->add_flag("--json", o->json, "One JSON document on stdout; `plait train --plan` runs it");
  command->add_option("--trace", o->trace,
                      "Write the simulated step to this file, for Perfetto: of up to 16 ranks, or one of each stage");
  command->add_option("--schedule-csv", o->schedule_csv,
                      "Write the schedule to this file, in the form that parallel.schedule: {file: PATH} and PyTorch read");
  command->add_flag("--programs", o->programs, "With --json: every rank's instructions too")->needs("--json");
  command->add_flag("--grid", o->grid, "Draw the step: what each pipeline rank computes when")->excludes("--json");
  command->add_option("--width", o->width, "With --grid: columns of a line (default: the terminal's)")
      ->needs("--grid")
      ->check(whole_number(o->width, 1));
  command->callback([o, &status] {
    if (!o->accuracy.empty()) {
      if (!o->config.empty()) throw ConfigError("plan: --accuracy shows runs that have ended; give it no configuration file");
      show_accuracy(*o);
      status = 0;
      return;
    }
    if (o->config.empty()) throw ConfigError("plan: give a configuration file, or --accuracy RUN_DIR...");
    const Plan plan = make_plan(*o);
    if (!o->trace.empty()) write_trace(plan, o->trace);
    if (!o->schedule_csv.empty()) {
      write_output(o->schedule_csv, schedule_csv(stage_passes(plan.stages().front().schedule)));
    }
    if (o->json) {
      std::cout << json_of(plan, o->programs).dump(2) << '\n';
    } else {
      print(plan);
      if (o->grid) print_grid(plan, o->width > 0 ? o->width : terminal_width(stdout));
    }
    status = 0;
  });
}

}  // namespace plait
