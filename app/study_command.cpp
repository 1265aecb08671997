// plait study CONFIG [--simulate] [--resume DIR] [--dry-run] [--only EXPR] [--slurm DIR] [--set path=value ...] [--json]; and
// its subcommands.
#include <spdlog/fmt/fmt.h>

#include <iostream>
#include <memory>
#include <optional>

#include "commands.h"
#include "config/config.h"
#include "core/error.h"
#include "core/message.h"
#include "core/task_progress.h"
#include "core/terminal.h"
#include "data/files.h"
#include "interop/trained_model.h"
#include "launch/stop_signals.h"
#include "site/devices.h"
#include "site/site_planning.h"
#include "study/display.h"
#include "study/expression.h"
#include "study/records.h"
#include "study/report/report.h"
#include "study/resolution.h"
#include "study/runner.h"
#include "study/simulated_points.h"
#include "study/study_data.h"
#include "study/study_folder.h"
#include "study_commands.h"
#include "topology/topology_json.h"

namespace plait {
namespace {

struct StudyOptions {
  std::string config, resume, only, slurm;
  std::vector<std::string> set;
  bool simulate = false, dry_run = false, json = false, check_devices = false;
  std::string program;
};

// Text for people goes to a stream that does not mix with the document.
std::FILE* text_stream(bool json) { return json ? stderr : stdout; }

void require_this_machine(const study::StudyData& data) {
  const train::Environment here = train::environment_here();
  if (here.variables != data.environment.variables)
    message_to_stderr("warning: variables of the environment are not those that the study began with (" +
                      (data.folder / "environment.json").string() + ")");
  if (here.plait.commit.empty() || here.plait.commit.ends_with("-dirty"))
    message_to_stderr("warning: this plait is of no commit: nobody can tell whether it is the one that the study began with");
  if (here.plait.commit == data.environment.plait.commit && here.machine() == data.environment.machine()) return;
  throw ConfigError(fmt::format(
      "{} was measured by plait {} on {}; this is plait {} on {}: a point would not be the same. Start a "
      "study of its own, and compare the two",
      data.folder.string(), data.environment.plait.commit, data.environment.machine(), here.plait.commit, here.machine()));
}

[[noreturn]] void refuse_only(const study::Expression& only, const std::string& what) {
  throw ConfigError({{"--only", only.text(), "holds for no point that would be " + what, "", 0}});
}

// The points that satisfy it, whether left out or not, plus the baseline, which is always measured. Refused before a folder is
// made in vain.
std::vector<study::Point> chosen_points(const study::Expression& only, const std::vector<study::Point>& points) {
  study::StudyData data;
  data.points = points;
  const std::optional<int> baseline = baseline_of(data);
  bool measures = false;
  std::vector<study::Point> chosen;
  for (const study::Point& point : points) {
    const bool holds = !point.config.empty() && only.holds(parse_config(point.config, {}, "points.jsonl")) == true;
    if (holds || point.index == baseline) chosen.push_back(point);
    measures = measures || (holds && !point.pruning);
  }
  if (!measures) refuse_only(only, "measured: --dry-run without it lists them");
  return chosen;
}

std::vector<study::SimulatedPoint> simulated_points(const Config& config, const study::StudyData* measured,
                                                    const study::Expression* only = nullptr) {
  TaskProgress progress("simulating");
  int done = 0;
  return study::simulate_points(config, measured, only, [&](const study::SimulatedPoint& point) {
    progress.advance(0, fmt::format("{} points, the last of {} GPUs", ++done, point.gpus));
  });
}

int simulate_only(const Config& config, const study::Expression* only, const StudyOptions& o) {
  if (config.study.simulate.gpus.empty()) {
    throw ConfigError({{"study.simulate.gpus", "[]", "must list numbers of GPUs to simulate, for --simulate", "", 0}});
  }
  const auto points = simulated_points(config, nullptr, only);
  if (only != nullptr && points.empty()) refuse_only(*only, "simulated: --simulate without it lists them");
  fmt::print(text_stream(o.json), "{}", study::simulated_table(points, terminal_width(text_stream(o.json))));
  if (o.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const study::SimulatedPoint& point : points) list.push_back(record_json(point));
    std::cout << nlohmann::ordered_json{{"simulated", list}}.dump(2) << '\n';
  }
  return 0;
}

int measure_and_finish(const std::filesystem::path& directory, const StudyOptions& o) {
  study::StudyFolder folder(directory);
  const study::StopReason reason = measure(folder, {.program = o.program, .only = o.only, .round = {}});
  if (reason == study::StopReason::interrupted) return launch::stopped_status;
  return finish_study(folder.data(), o.json);
}

int run(const StudyOptions& o) {
  if (o.check_devices) {
    study::check_devices();
    return 0;
  }
  if (!o.resume.empty()) {
    if (!o.config.empty() || !o.set.empty())
      throw ConfigError("study: --resume goes on with the study's own configuration; give neither CONFIG nor --set");
    if (o.dry_run || o.simulate || !o.slurm.empty())
      throw ConfigError("study: --resume measures; give it neither --dry-run, --simulate nor --slurm");
    return measure_and_finish(o.resume, o);
  }
  if (o.config.empty()) throw ConfigError("study: give a configuration file, or --resume DIR");
  const Config config = load_config(o.config, o.set, interop::read_model_directory);
  study::check_simulated_device(config);
  std::optional<study::Expression> only;
  if (!o.only.empty()) only.emplace(o.only, "--only");  // before minutes have passed
  if (!o.slurm.empty()) {
    if (o.simulate || o.dry_run || o.json || !o.only.empty())
      throw ConfigError(
          "study: --slurm only writes the study's folder; give it neither --simulate, --dry-run, --only nor --json");
    prepare_for_slurm(config, o.slurm);
    return 0;
  }
  if (o.simulate) return simulate_only(config, only ? &*only : nullptr, o);
  const train::Environment environment = train::environment_here();
  const std::vector<study::Point> points = listed_points(config, environment, 0);
  const std::vector<study::Point> chosen = only ? chosen_points(*only, points) : points;
  if (o.dry_run) {
    fmt::print(text_stream(o.json), "{}", dry_run_table(config, chosen, terminal_width(text_stream(o.json))));
    if (o.json) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const study::Point& point : chosen) list.push_back(record_json(point));
      std::cout << nlohmann::ordered_json{{"points", list}}.dump(2) << '\n';
    }
    return 0;
  }
  return measure_and_finish(create_study(config, environment, topology_here(config), points), o);
}

}  // namespace

std::vector<study::Point> listed_points(const Config& config, const train::Environment& environment, int ranks_per_node) {
  TaskProgress progress("planning");
  const auto advanced = [&](std::size_t done, std::size_t all) {
    progress.advance(static_cast<double>(done) / static_cast<double>(all), fmt::format("{} of {} points", done, all));
  };
  return study::list_points(config, {environment.plait.commit, environment.machine()}, advanced, ranks_per_node);
}

nlohmann::ordered_json topology_here(const Config& config) {
  const site::DeviceChoice devices = site::choose_devices(config);
  if (devices.kind == DeviceKind::host) return nullptr;
  return topology::to_json(site::live_graph(devices.count));
}

study::StopReason measure(study::StudyFolder& folder, const MeasuringOptions& o) {
  if (!folder.warning().empty()) message_to_stderr("warning: " + folder.warning());
  const study::StudyData& data = folder.data();
  require_this_machine(data);
  // Relative paths start from plait's working directory, and a point that does not find its data fails for good.
  data::match_files(data.config.data.training_files(), data.config.data.training_key());
  data::match_files(data.config.data.validation, "data.validation");
  std::optional<study::Expression> only;
  if (!o.only.empty()) only.emplace(o.only, "--only");
  const launch::StopSignals signals;  // the first ends the running point; a second one ends this process, and with it the point
  StatusLine line(detect_terminal(stderr));
  study::RunnerOptions options;
  options.program = o.program;
  options.only = only ? &*only : nullptr;
  options.round = o.round;
  options.stop = [&] { return signals.wish() != launch::Stop::none; };
  options.advanced = [&](const study::Advance& advance) {
    line.print(round_line(data, *advance.round));
    // One column stays free: a terminal wraps when the last one is written.
    line.update(shortened(advance_line(data, advance), line.width() - 1, line.options().unicode));
  };
  const study::StopReason reason = measure_study(folder, options);
  line.update("");
  if (reason == study::StopReason::interrupted) {
    message_to_stderr(fmt::format("stopped by {}; nothing that was measured is lost. Go on with: {}",
                                  launch::describe_signal(signals.signal()), study::go_on_command(folder.path(), o.round)));
  }
  return reason;
}

int finish_study(study::StudyData& data, bool json) {
  if (!data.config.study.simulate.gpus.empty()) {
    data.simulated = simulated_points(data.config, &data);
    study::write_simulated(data.folder, data.simulated);
  }
  const nlohmann::ordered_json summary = summary_json(data);
  std::FILE* text = text_stream(json);
  fmt::print(text, "{}", result_table(data, terminal_width(text)));
  if (!data.simulated.empty()) fmt::print(text, "\n{}", simulated_table(data.simulated, terminal_width(text)));
  fmt::print(text, "study: {}\n", data.folder.string());
  fmt::print(text, "report: {}\n", write_report(data, data.folder).front().string());
  if (json) std::cout << summary.dump(2) << '\n';
  return summary.at("exceeded_bounds").empty() ? 0 : 1;
}

void add_study_command(CLI::App& app, int& status, int argc, char** argv) {
  auto o = std::make_shared<StudyOptions>();
  CLI::App* command = app.add_subcommand("study", "Measure how a job scales: the points of a configuration's section `study`");
  command->add_option("CONFIG", o->config, "Configuration (YAML); its section `study` lists the points");
  command->add_option("--set", o->set, "Override a configuration value (repeatable)")->type_name("PATH=VALUE");
  command->add_option("--resume", o->resume, "Go on with a study; nothing is measured twice")->type_name("DIR");
  command
      ->add_option("--only", o->only, "Only the points for which this holds, and the baseline: \"ranks == 2 and pipeline > 1\"")
      ->type_name("EXPR");
  command
      ->add_option("--slurm", o->slurm,
                   "Measure nothing: write the study's folder with scripts that measure it under Slurm (docs/studies.md)")
      ->type_name("DIR");
  command->add_flag("--dry-run", o->dry_run, "Show the points, what they cost, and those that are left out; measure nothing");
  command->add_flag("--simulate", o->simulate, "Only simulate, at the sizes of study.simulate.gpus; measure nothing");
  command->add_flag("--json", o->json, "One JSON document on stdout, everything else on stderr");
  command->add_flag("--check-devices", o->check_devices)->group("");
  o->program = argc > 0 ? argv[0] : "plait";
  add_study_fit_command(*command, status);
  add_study_report_command(*command, status);
  add_study_compare_command(*command, status);
  add_study_slurm_commands(*command, status, o->program);
  command->callback([o, command, &status] {
    if (command->get_subcommands().empty()) status = run(*o);
  });
}

}  // namespace plait
