#include "study/study_data.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "checkpoint/run_directory.h"
#include "config/schema.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/message.h"
#include "core/parse_number.h"
#include "study/records.h"
#include "topology/topology_json.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t most_file_bytes = std::uint64_t{2} << 30;
constexpr std::size_t most_points = 1'000'000;

// Calls `read` for every line. The last one may be half-written where `grows`.
void each_line(const fs::path& path, bool grows, const std::function<void(const JsonField&)>& read) {
  const std::string text = read_text(path, most_file_bytes);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    ++number;
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos && grows) return;
    const std::string line = text.substr(begin, end == std::string::npos ? end : end - begin);
    const JsonSource source{.name = fmt::format("{}:{}", path.string(), number)};
    const Json json =
        parse_json<Json>(line, [&](const std::string& problem) { throw ConfigError(source.name + ": " + problem); });
    read(JsonField(json, source));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
}

std::vector<Point> read_points(const fs::path& path) {
  std::vector<Point> points;
  each_line(path, false, [&](const JsonField& line) {
    Point point = record_from<Point>(line);
    if (points.size() >= most_points || point.index != static_cast<int>(points.size()))
      line.refuse("point", fmt::format("must be {}: points are listed in order", points.size()));
    points.push_back(std::move(point));
  });
  if (points.empty()) throw ConfigError(path.string() + ": holds no points");
  return points;
}

// A task's file may hold rounds of one number only.
void read_results(const fs::path& path, std::optional<int> task, StudyData& data) {
  if (!fs::exists(path)) return;
  each_line(path, true, [&](const JsonField& line) {
    const std::string record = line["record"].text();
    if (record == "round") {
      Round round = record_from<Round>(line);
      line["point"].whole(0, std::ssize(data.points) - 1);
      if (data.points[static_cast<std::size_t>(round.point)].pruning) line.refuse("point", "must be one that was not pruned");
      if (task && round.round != *task)
        line.refuse("round", fmt::format("must be {}: a task measures the round of its number", *task));
      data.rounds.push_back(std::move(round));
    } else if (record == "stop") {
      data.stops.push_back(record_from<Stop>(line));
    } else {
      line.refuse("record", "must be one of round, stop");
    }
  });
}

void read_tasks(const fs::path& folder, StudyData& data) {
  if (!fs::is_directory(folder)) return;
  std::set<int> numbers;
  for (const fs::path& path : list_directory(folder)) {
    const auto number = whole_number<int>(path.filename().string());
    if (!number || *number < 1) throw ConfigError(path.string() + ": not a task's folder: its name is no number of a round");
    numbers.insert(*number);
  }
  for (const int number : numbers) read_results(task_folder(data.folder, number) / "results.jsonl", number, data);
}

void put_in_order(StudyData& data) {
  std::ranges::stable_sort(
      data.rounds, [](const Round& a, const Round& b) { return std::tie(a.round, a.started) < std::tie(b.round, b.started); });
  std::set<std::pair<int, int>> seen;
  std::erase_if(data.rounds, [&](const Round& round) { return !seen.insert({round.point, round.round}).second; });
  std::ranges::stable_sort(data.stops, {}, &Stop::time);
}

}  // namespace

fs::path task_folder(const fs::path& study, int round) { return study / "tasks" / std::to_string(round); }

std::string Point::label() const {
  std::string text;
  for (const auto& [key, value] : coordinates) {
    const std::size_t dot = key.rfind('.');
    const std::string name = dot == std::string::npos ? key : key.substr(dot + 1);
    const bool words = value.find_first_of(" =") != std::string::npos;
    text += fmt::format("{}{}={}{}{}", text.empty() ? "" : " ", name, words ? "\"" : "", value, words ? "\"" : "");
  }
  return text.empty() ? "the configuration" : text;
}

Coordinates Point::job() const {
  Coordinates left = coordinates;
  std::erase_if(left, [](const auto& at) {
    return at.first == "launch.ranks" || at.first == "layout" || at.first == "train.micro_batch" ||
           at.first.starts_with("parallel.");
  });
  return left;
}

bool Point::has(const std::string& key, const std::string& value) const {
  return std::ranges::find(coordinates, std::pair(key, value)) != coordinates.end();
}

std::vector<const Round*> StudyData::rounds_of(int point) const {
  std::vector<const Round*> found;
  for (const Round& round : rounds) {
    if (round.point == point) found.push_back(&round);
  }
  return found;
}

std::vector<const Round*> StudyData::measured_rounds_of(int point) const {
  std::vector<const Round*> found = rounds_of(point);
  std::erase_if(found, [](const Round* round) { return !round->measured; });
  return found;
}

const Round* StudyData::failure_of(int point) const {
  for (const Round& round : rounds) {
    if (round.point == point && round.outcome != Outcome::ok) return &round;
  }
  return nullptr;
}

PointState StudyData::state_of(int point) const {
  if (points.at(static_cast<std::size_t>(point)).pruning) return PointState::pruned;
  if (const Round* failure = failure_of(point)) {
    switch (failure->outcome) {
      case Outcome::out_of_memory: return PointState::out_of_memory;
      case Outcome::timed_out: return PointState::timed_out;
      default: return PointState::failed;
    }
  }
  if (is_settled(config.study.measure, measured_rounds_of(point))) return PointState::ok;
  const bool ran_out = !stops.empty() && stops.back().reason == StopReason::over_budget;
  return ran_out ? PointState::over_budget : PointState::interrupted;
}

void require_points(const fs::path& folder) {
  if (fs::exists(folder / "points.jsonl")) return;
  const bool under_slurm = fs::exists(folder / "tasks") && fs::exists(folder / "config.yaml");
  throw ConfigError(folder.string() + (under_slurm ? ": the study's points are not listed yet: plait study points " +
                                                         shell_quoted(folder.string()) + " on a node that it is to run on"
                                                   : ": not a study's folder: it holds no points.jsonl"));
}

StudyData read_study(const fs::path& folder) {
  require_points(folder);
  StudyData data;
  data.folder = folder;
  data.config = checkpoint::load_run_config(folder);
  const fs::path environment = folder / "environment.json";
  const Json json = read_json_file(environment.string(), most_file_bytes);
  data.environment = train::environment_from(json, environment.string());
  if (const auto graph = json.find("topology"); graph != json.end() && !graph->is_null())
    data.topology = topology::import_topology_json(graph->dump(), environment.string() + ": topology").graph;
  data.points = read_points(folder / "points.jsonl");
  read_results(folder / "results.jsonl", std::nullopt, data);
  read_tasks(folder / "tasks", data);
  put_in_order(data);
  if (const fs::path simulated = folder / "simulated.jsonl"; fs::exists(simulated)) {
    each_line(simulated, false, [&](const JsonField& line) { data.simulated.push_back(record_from<SimulatedPoint>(line)); });
  }
  data.baseline = baseline_of(data);
  return data;
}

std::vector<double> round_medians(const std::vector<const Round*>& measured) {
  std::vector<double> medians;
  for (const Round* round : measured) medians.push_back(median(round->measured.value().step_ms));
  return medians;
}

Interval step_interval(const std::vector<const Round*>& measured) { return median_interval(round_medians(measured)); }

bool is_settled(const MeasureConfig& measure, const std::vector<const Round*>& measured) {
  const config::RoundRange rounds = config::round_range(measure.rounds).value();
  const auto done = static_cast<int>(measured.size());
  if (done >= rounds.most) return true;
  const auto until = percentage(measure.until);
  if (done < std::max(rounds.least, least_rounds_for_interval) || !until) return false;
  const Interval interval = step_interval(measured);
  return interval.high - interval.low <= *until * median(round_medians(measured));
}

std::optional<int> baseline_of(const StudyData& data) {
  std::optional<int> best;
  // Fewest ranks, shortest predicted time per token; points without a prediction come last.
  const auto place = [](const Point& point) {
    const PointFacts& facts = point.facts.value();
    const double tokens = static_cast<double>(facts.tokens_per_step());
    return std::tuple(facts.ranks, !point.prediction, point.prediction ? point.prediction->step_ms / tokens : 0, point.index);
  };
  for (const Point& point : data.points) {
    if (point.pruning || data.failure_of(point.index) != nullptr) continue;
    if (!best || place(point) < place(data.points[static_cast<std::size_t>(*best)])) best = point.index;
  }
  return best;
}

}  // namespace plait::study
