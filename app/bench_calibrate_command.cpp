// plait bench calibrate CONFIG [--set path=value ...] [--tensor 1,2,...] [--micro-batches 1,2,...] [--out FILE] [--json]
#include <spdlog/fmt/fmt.h>

#include <iostream>
#include <memory>

#include "bench/calibration_benchmark.h"
#include "bench_commands.h"
#include "bench_options.h"
#include "core/error.h"
#include "core/format_bytes.h"
#include "core/milliseconds_of.h"
#include "core/units.h"
#include "launch/calibration_cache.h"
#include "train/trained_model.h"

namespace plait {
namespace {

struct CalibrateOptions {
  std::string config, out;
  std::vector<std::string> set;
  bench::CalibrationRequest request;
  bool segments_only = false, json = false;
  double timeout_s = 60;
};

void print(const plan::Calibration& c) {
  fmt::print("{}: {}\n", c.device, c.model);
  fmt::print("{:<12} {:>6} {:>11} {:<10} {:>10} {:>15} {:>16}\n", "segment", "tensor", "micro-batch", "recompute", "forward ms",
             "backward input", "backward weight");
  for (const plan::SegmentMeasurement& m : c.segments) {
    fmt::print("{:<12} {:>6} {:>11} {:<10} {:>10.4f} {:>15.4f} {:>16.4f}\n", to_string(m.kind), m.tensor, m.micro_batch,
               to_string(m.recompute), 1e3 * m.forward, 1e3 * m.backward_input, 1e3 * m.backward_weight);
  }
  if (c.update_seconds_per_element)
    fmt::print("optimizer    {:.3f} ms per million parameters\n", 1e9 * *c.update_seconds_per_element);
  for (const plan::CollectiveMeasurement& m : c.collectives) {
    const auto& [bytes, seconds] = m.curve.points.back();
    fmt::print("{:<14} among {:>3} ranks: {:>8.1f} us for {:.0f} KB, {:>8.1f} us for {:.0f} MB\n", m.kind, m.ranks,
               1e6 * m.curve.points.front().second, m.curve.points.front().first / 1024, 1e6 * seconds, bytes / 1024 / 1024);
  }
  for (const plan::MessageMeasurement& m : c.messages) {
    const auto& [bytes, seconds] = m.curve.points.back();
    fmt::print("messages by {}: {:.1f} us for {:.0f} KB, {:.1f} us for {:.0f} MB\n", m.transport,
               1e6 * m.curve.points.front().second, m.curve.points.front().first / 1024, 1e6 * seconds, bytes / 1024 / 1024);
  }
  for (const plan::CommunicatorMeasurement& m : c.communicators) {
    fmt::print("communicator   among {:>3} ranks: {} of a GPU\n", m.ranks, format_gib(m.bytes, 2));
  }
  if (c.context_bytes)
    fmt::print("libraries    {} of a GPU, {:.2f} more with communicators\n", format_gib(*c.context_bytes, 2),
               c.collectives_bytes.value_or(0) / gib);
}

}  // namespace

void add_bench_calibrate_command(CLI::App& bench, int& status, int argc, char** argv) {
  auto o = std::make_shared<CalibrateOptions>();
  CLI::App* command = bench.add_subcommand(
      "calibrate", "Measure this machine for the planner: a model's segments, its optimizer, collectives, messages");
  command->add_option("CONFIG", o->config, "Configuration (YAML): the model")->required();
  command->add_option("--set", o->set, "Override a value (repeatable)")->type_name("PATH=VALUE");
  command
      ->add_option("--tensor", o->request.tensors, "Sizes of tensor groups (default: powers of two up to the number of ranks)")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--micro-batches", o->request.micro_batches,
                   "Micro-batch sizes in sequences (default: 1, 2, 4, 8 and the configuration's)")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command->add_option("--rounds", o->request.rounds, "Rounds; every figure is their median")->check(CLI::PositiveNumber);
  command->add_flag("--segments-only", o->segments_only, "Skip collectives and messages");
  command->add_option("--out", o->out,
                      "File to write (default: where `plait plan` and `plait train` look for it on this machine)");
  command->add_flag("--json", o->json, "One JSON document on stdout");
  add_rank_options(*command, o->request.ranks, o->timeout_s);
  command->callback([o, &status, argc, argv] {
    o->request.config = load_config(o->config, o->set, train::read_model_directory);
    o->request.communication = !o->segments_only;
    o->request.ranks.timeout = milliseconds_of(o->timeout_s);
    if (o->request.ranks.processes) throw ConfigError("bench calibrate: ranks are always threads; leave out --processes");
    o->request.argv.assign(argv, argv + argc);
    o->request.note = note_to_stderr;
    const plan::Calibration calibration = bench::calibrate(o->request);
    const std::string path = o->out.empty() ? launch::calibration_path(calibration.device, calibration.model) : o->out;
    if (path.empty())
      throw ConfigError("bench calibrate: neither XDG_CACHE_HOME nor HOME is set; say where to write with --out");
    launch::save_calibration(calibration, path);
    if (o->json) {
      std::cout << to_json(calibration).dump(2) << '\n';
    } else {
      print(calibration);
    }
    note_to_stderr("written to " + path);
    status = 0;
  });
}

}  // namespace plait
