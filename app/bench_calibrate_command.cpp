// plait bench calibrate CONFIG [--set path=value ...] [--tensor 1,2,...] [--micro-batches 1,2,...] [--out FILE] [--json]
#include <spdlog/fmt/fmt.h>

#include <iostream>
#include <memory>

#include "bench/calibration_benchmark.h"
#include "bench_commands.h"
#include "core/error.h"
#include "core/format.h"
#include "core/message.h"
#include "core/task_progress.h"
#include "core/terminal.h"
#include "core/text_table.h"
#include "core/units.h"
#include "interop/trained_model.h"
#include "site/calibration_cache.h"
#include "usage.h"

namespace plait {
namespace {

struct CalibrateOptions {
  std::string config, out;
  std::vector<std::string> set;
  bench::CalibrationRequest request;
  bool segments_only = false, json = false;
  double timeout_s = 60;
};

plan::Calibration calibrate_with_progress(bench::CalibrationRequest request) {
  const auto line = std::make_shared<StatusLine>(detect_terminal(stderr));
  TaskProgress progress("measuring", line);
  request.note = [line](const std::string& text) { line->print("plait: " + text); };
  request.progress = progress.callback();
  return bench::calibrate(request);
}

void print(const plan::Calibration& c) {
  fmt::print("{}\n", folded(c.device + ": " + c.model, terminal_width(stdout), 4));
  TextTable segments({{"segment", Align::left},
                      {to_string(segment_axis)},
                      {"micro-batch"},
                      {"recompute", Align::left},
                      {"head", Align::left},
                      {"forward ms"},
                      {"backward input"},
                      {"backward weight"}});
  for (const plan::SegmentMeasurement& m : c.segments) {
    const auto ms = [](double seconds) { return fmt::format("{:.4f}", 1e3 * seconds); };
    segments.add({to_string(m.kind), std::to_string(m.tensor), std::to_string(m.micro_batch), to_string(m.recompute),
                  m.beside_head ? "on the rank" : "elsewhere", ms(m.forward), ms(m.backward_input), ms(m.backward_weight)});
  }
  fmt::print("{}", segments.text(terminal_width(stdout)));
  if (c.update_seconds_per_byte && *c.update_seconds_per_byte > 0)
    fmt::print("optimizer    {:.1f} GB/s\n", 1e-9 / *c.update_seconds_per_byte);
  TextTable transfers({{"transfer", Align::left}, {"ranks"}, {"us"}, {"for"}, {"us"}, {"for"}});
  const auto add = [&](const std::string& name, const std::string& ranks, const plan::Curve& curve) {
    const auto& [small, small_seconds] = curve.points.front();
    const auto& [large, large_seconds] = curve.points.back();
    transfers.add({name, ranks, fmt::format("{:.1f}", 1e6 * small_seconds), fmt::format("{:.0f} KB", small / 1024),
                   fmt::format("{:.1f}", 1e6 * large_seconds), fmt::format("{:.0f} MB", large / 1024 / 1024)});
  };
  for (const plan::CollectiveMeasurement& m : c.collectives) add(m.kind, std::to_string(m.ranks), m.curve);
  for (const plan::MessageMeasurement& m : c.messages) add("messages by " + m.transport, "2", m.curve);
  if (!c.collectives.empty() || !c.messages.empty()) fmt::print("{}", transfers.text(terminal_width(stdout)));
  for (const plan::CommunicatorMeasurement& m : c.communicators) {
    fmt::print("communicator   among {:>3} ranks: {} of a GPU\n", m.ranks, format_bytes(m.bytes, 2));
  }
  if (c.context_bytes)
    fmt::print("libraries    {} of a GPU, {} more with communicators\n", format_bytes(*c.context_bytes, 2),
               format_bytes(c.collectives_bytes.value_or(0), 2));
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
      ->check(whole_number(o->request.tensors, 1));
  command
      ->add_option("--micro-batches", o->request.micro_batches,
                   "Micro-batch sizes in sequences (default: 1, 2, 4, 8 and the configuration's)")
      ->delimiter(',')
      ->check(whole_number(o->request.micro_batches, 1));
  command->add_option("--rounds", o->request.rounds, "Rounds; every figure is their median")
      ->check(whole_number(o->request.rounds, 1));
  command->add_flag("--segments-only", o->segments_only, "Skip collectives and messages");
  command->add_option("--out", o->out,
                      "File to write (default: where `plait plan` and `plait train` look for it on this machine)");
  command->add_flag("--json", o->json, "One JSON document on stdout");
  add_rank_options(*command, o->request.ranks, o->timeout_s);
  command->callback([o, &status, argc, argv] {
    o->request.config = load_config(o->config, o->set, interop::read_model_directory);
    o->request.communication = !o->segments_only;
    o->request.ranks.timeout = milliseconds_of(o->timeout_s);
    if (o->request.ranks.processes) throw ConfigError("bench calibrate: ranks are always threads; leave out --processes");
    o->request.argv.assign(argv, argv + argc);
    if (!o->out.empty()) site::prepare_to_save(o->out);
    const plan::Calibration calibration = calibrate_with_progress(o->request);
    const std::string path = o->out.empty() ? site::calibration_path(calibration.device, calibration.model) : o->out;
    if (path.empty())
      throw ConfigError("bench calibrate: neither XDG_CACHE_HOME nor HOME is set; say where to write with --out");
    site::save_calibration(calibration, path);
    if (o->json) {
      std::cout << to_json(calibration).dump(2) << '\n';
    } else {
      print(calibration);
    }
    message_to_stderr("written to " + path);
    status = 0;
  });
}

}  // namespace plait
