#include "study/study_folder.h"

#include <spdlog/fmt/chrono.h>
#include <spdlog/fmt/fmt.h>

#include <ctime>

#include "checkpoint/run_directory.h"
#include "config/schema.h"
#include "core/error.h"
#include "core/message.h"
#include "study/records.h"
#include "study/study_data.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds patience{30};  // for the remains of a killed study's point
constexpr std::uint64_t most_results_bytes = std::uint64_t{2} << 30;

// A process's log may hold any bytes.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

File open_results(const fs::path& folder) {
  const fs::path path = folder / "results.jsonl";
  if (fs::exists(path)) {
    const std::string text = read_text(path, most_results_bytes);
    const std::size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (whole < text.size()) File::open_write(path).truncate(whole);
  }
  File results = File::open_append(path);
  sync_directory(folder);
  return results;
}

checkpoint::RunLock own(const fs::path& folder) { return checkpoint::RunLock::own(folder, patience, message_to_stderr); }

checkpoint::RunLock own_task(const fs::path& study, int number) {
  create_private_directories(task_folder(study, number));
  return own(task_folder(study, number));
}

int most_rounds(const fs::path& folder) {
  return config::round_range(checkpoint::load_run_config(folder).study.measure.rounds).value().most;
}

// Locks all possible tasks, so that none can begin while this process measures.
std::vector<checkpoint::RunLock> own_all(const fs::path& folder) {
  require_points(folder);
  std::vector<checkpoint::RunLock> locks;
  locks.push_back(own(folder));
  if (!fs::exists(folder / "tasks")) return locks;
  for (int number = 1; number <= most_rounds(folder); ++number) locks.push_back(own_task(folder, number));
  return locks;
}

std::vector<checkpoint::RunLock> own_round(const fs::path& folder, int number) {
  require_points(folder);
  if (!fs::exists(folder / "tasks")) {
    throw ConfigError(folder.string() +
                      ": was not made by plait study --slurm, and is measured as a whole: plait study --resume " +
                      shell_quoted(folder.string()));
  }
  if (const int most = most_rounds(folder); number < 1 || number > most)
    throw ConfigError(
        {{"round", std::to_string(number), fmt::format("must be from 1 to {} (study.measure.rounds)", most), "", 0}});
  std::vector<checkpoint::RunLock> locks;
  locks.push_back(own_task(folder, number));
  return locks;
}

fs::path prepare_point(const fs::path& study, const Point& point) {
  const fs::path folder = study / "points" / std::to_string(point.index);
  if (fs::exists(folder / "config.yaml")) return folder;
  create_private_directories(folder);
  checkpoint::keep_config(folder, parse_config(point.config, {}, folder.string()));
  return folder;
}

}  // namespace

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

fs::path create_study(const Config& study, const train::Environment& environment, const Json& topology,
                      const std::vector<Point>& points) {
  const fs::path folder = checkpoint::create_run_directory(study.run);
  checkpoint::keep_config(folder, study);
  keep_points(folder, environment, topology, points, false);
  return folder;
}

void keep_points(const fs::path& folder, const train::Environment& environment, const Json& topology,
                 const std::vector<Point>& points, bool prepared) {
  Json record = to_json(environment);
  record["topology"] = topology;
  write_text_file(folder / "environment.json", dump(record) + "\n");
  std::string lines;
  for (const Point& point : points) {
    lines += dump(record_json(point)) + "\n";
    // A schedule from a file is kept as it is now: what its path leads to may change.
    const bool from_file = point.facts && !named<ScheduleKind>(point.facts->schedule);
    if (from_file || (prepared && !point.pruning)) prepare_point(folder, point);
  }
  write_text_file(folder / "points.jsonl", lines);
  sync_directory(folder);
}

StudyFolder::StudyFolder(const fs::path& folder)
    : locks_(own_all(folder)), data_(read_study(folder)), results_(open_results(folder)) {}

StudyFolder::StudyFolder(const fs::path& folder, int number)
    : locks_(own_round(folder, number)), data_(read_study(folder)), results_(open_results(task_folder(folder, number))) {}

void StudyFolder::append(const Json& line) {
  results_.append(dump(line) + "\n");
  results_.sync();
}

void StudyFolder::add(Round round) {
  append(record_json(round));
  data_.rounds.push_back(std::move(round));
  data_.baseline = baseline_of(data_);
}

void StudyFolder::add(Stop stop) {
  append(record_json(stop));
  data_.stops.push_back(std::move(stop));
}

fs::path StudyFolder::prepare(const Point& point) const { return prepare_point(path(), point); }

Config StudyFolder::config_of(const Point& point) const {
  const fs::path folder = path() / "points" / std::to_string(point.index);
  return fs::exists(folder / "config.yaml") ? checkpoint::load_run_config(folder)
                                            : parse_config(point.config, {}, (path() / "points.jsonl").string());
}

std::vector<std::string> StudyFolder::config_arguments(const Point& point) const {
  const fs::path folder = prepare(point);
  std::vector<std::string> arguments{(folder / "config.yaml").string()};
  if (const fs::path schedule = folder / "schedule.csv"; fs::exists(schedule)) {
    arguments.insert(arguments.end(), {"--set", "parallel.schedule.file=" + config::yaml_text(schedule.string())});
  }
  return arguments;
}

}  // namespace plait::study
