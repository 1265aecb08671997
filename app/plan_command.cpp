// plait plan CONFIG [--json [--programs]] [--grid] [--gpus N] [--set path=value ...]
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "commands.h"
#include "core/config.h"
#include "core/error.h"
#include "parallel/job_plan.h"
#include "parallel/plan_json.h"
#include "parallel/program_grid.h"
#include "parallel/validator.h"
#include "train/data/tokenizer.h"
#include "train/launch.h"
#include "train/report/progress_text.h"

namespace plait {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> set;
  int gpus = 0;
  bool json = false, programs = false, grid = false;
};

struct Plan {
  std::vector<parallel::RankPlan> ranks;
  std::vector<std::string> devices;
};

// A tokenizer that would have to be trained first is not: its size is known.
std::int64_t vocabulary(const Config& config) {
  const std::int64_t wanted = config.data.sentencepiece.vocab;
  return wanted > 0 ? wanted : train::create_tokenizer(config)->vocab();
}

Plan make_plan(const Options& o) {
  Config config = load_config(o.config, o.set);
  Plan plan;
  std::vector<Device> devices;
  if (o.gpus > 0) {
    for (int i = 0; i < o.gpus; ++i) devices.push_back({DeviceKind::cuda, i});
  } else {
    devices = train::plan_launch(config).devices;
  }
  const auto ranks = static_cast<int>(devices.size());
  plan.ranks = parallel::make_job_plan(config, vocabulary(config), parallel::resolve_layout(config.parallel, ranks), devices.front().kind);
  for (const Device device : devices) plan.devices.push_back(to_string(device));
  parallel::require_valid(parallel::training_programs(plan.ranks));
  parallel::require_valid(parallel::evaluation_programs(plan.ranks));
  return plan;
}

std::string blocks_text(const parallel::RankPlan& plan) {
  std::string text;
  for (const parallel::Chunk& c : plan.train.chunks) {
    text += text.empty() ? "" : " + ";
    text += c.end_block - c.first_block == 1 ? fmt::format("{}", c.first_block) : fmt::format("{}-{}", c.first_block, c.last_block());
  }
  return text;
}

void print(const Plan& plan) {
  const parallel::RankPlan& first = plan.ranks.front();
  const auto bytes = [](std::size_t n) { return train::format_bytes(static_cast<std::int64_t>(n)); };
  fmt::print("{} ranks: {}, zero {}\n", plan.ranks.size(), first.layout.to_string(), first.zero);
  fmt::print("schedule {}: {} micro-batches of {} sequences per data-parallel rank, {} stages, bubble {:.1f} % if forward and both "
             "parts of backward cost the same\n",
             first.schedule.name, first.micro_batches, first.sizes.micro_batch.batch, first.schedule.stages(),
             100 * parallel::simulate(first.schedule).bubble_fraction());
  fmt::print("blocks: 0 is the embedding, {} the head\n\n", first.sizes.shape.head_block());
  fmt::print("{:>4}  {:<8} {:>8} {:>4} {:>6}  {:<20} {:>10} {:>9} {:>10} {:>12}\n", "rank", "device", "pipeline", "data", "tensor", "blocks",
             "parameters", "in flight", "memory", "activations");
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const parallel::RankPlan& p = plan.ranks[r];
    const parallel::Coordinates c = p.coordinates();
    std::int64_t parameters = 0;
    for (const model::Parameter& parameter : p.parameters) parameters += parameter.stored;
    std::size_t activations = 0;
    for (const auto& [kind, size] : p.memory.bytes_by_kind()) activations += kind == "activations" ? size : 0;
    fmt::print("{:>4}  {:<8} {:>8} {:>4} {:>6}  {:<20} {:>10} {:>9} {:>10} {:>12}\n", r, plan.devices[r], c.pipeline, c.data, c.tensor,
               blocks_text(p), train::format_count(static_cast<double>(parameters)),
               parallel::peak_in_flight(p.schedule, c.pipeline), bytes(p.memory.total_bytes()), bytes(activations));
  }
}

}  // namespace

void add_plan_command(CLI::App& app, int& status) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "Show how a configuration would run: layout, stages, programs, memory. Needs no GPU");
  command->add_option("CONFIG", o->config, "Configuration (YAML)")->required();
  command->add_option("--set", o->set, "Override a value: --set parallel.pipeline=4 (repeatable)")->type_name("PATH=VALUE");
  command->add_option("--gpus", o->gpus, "Plan for this many GPUs, whatever this machine has")->check(CLI::PositiveNumber);
  command->add_flag("--json", o->json, "One JSON document on stdout");
  command->add_flag("--programs", o->programs, "With --json: every rank's instructions too")->needs("--json");
  command->add_flag("--grid", o->grid, "Draw the step: what each pipeline rank computes when")->excludes("--json");
  command->callback([o, &status] {
    const Plan plan = make_plan(*o);
    if (o->json) {
      auto json = parallel::to_json(plan.ranks, plan.ranks.front().schedule.name, plan.devices);
      if (o->programs) {
        json["programs"] = nlohmann::ordered_json::array();
        for (const parallel::RankPlan& rank : plan.ranks) json["programs"].push_back(parallel::to_json(rank.train));
      }
      std::cout << json.dump(2) << '\n';
    } else {
      print(plan);
      if (o->grid) {
        fmt::print("\n{}", parallel::draw_programs(parallel::training_programs(plan.ranks), {.colour = ::isatty(STDOUT_FILENO) == 1}));
      }
    }
    status = 0;
  });
}

}  // namespace plait
