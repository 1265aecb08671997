#include "study/runner.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "config/schema.h"
#include "core/device.h"
#include "core/error.h"
#include "core/json.h"
#include "core/message.h"
#include "core/stream.h"
#include "site/devices.h"
#include "study/point_process.h"
#include "study/records.h"
#include "study/srun_step.h"
#include "study/study_data.h"
#include "study/training_runs.h"

namespace plait::study {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::streamoff most_result_bytes = std::streamoff{1} << 30;
constexpr std::uint64_t most_log_bytes = std::uint64_t{1} << 30;
constexpr milliseconds check_deadline{120'000};
constexpr int most_checks = 3;
constexpr std::size_t check_bytes = std::size_t{1} << 20;

// The measured rounds other than `number`: a round that was left out is measured last.
std::vector<const Round*> measured_besides(const StudyData& data, int point, int number) {
  std::vector<const Round*> rounds = data.measured_rounds_of(point);
  std::erase_if(rounds, [number](const Round* round) { return round->round == number; });
  return rounds;
}

bool has_run(const StudyData& data, int point, int number) {
  return std::ranges::any_of(data.rounds, [&](const Round& r) { return r.point == point && r.round == number; });
}

// Fisher and Yates; std::shuffle differs between libraries.
void shuffle(std::vector<int>& order, std::uint64_t seed, int number) {
  std::seed_seq seeds{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(number)};
  std::mt19937_64 random(seeds);
  for (std::size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[random() % n]);
}

class Runner {
 public:
  Runner(StudyFolder& folder, const RunnerOptions& options) : folder_(folder), options_(options), data_(folder.data()) {
    if (options.only == nullptr) return;
    for (const Point& point : data_.points) {
      const bool holds = !point.pruning && options.only->holds(folder_.config_of(point)) == true;
      chosen_.push_back(holds);
    }
  }

  StopReason run() {
    const StopReason reason = measure();
    folder_.add(Stop{reason, utc_now()});
    return reason;
  }

 private:
  StopReason measure() {
    const int most = config::round_range(measure_config().rounds).value().most;
    const int first = options_.round.value_or(1), last = options_.round.value_or(most);
    require_nodes(first, last);
    for (int number = first; number <= last; ++number) {
      for (const int point : points_of_round(data_, number)) {
        if (!is_to_run(point, number)) continue;
        if (options_.stop && options_.stop()) return StopReason::interrupted;
        if (is_over_budget(point)) return StopReason::over_budget;
        if (!measure_point(data_.points[static_cast<std::size_t>(point)], number)) return StopReason::interrupted;
      }
    }
    return StopReason::complete;
  }

  // False for a point that failed earlier in this very round, or a baseline that did.
  bool is_to_run(int point, int number) const {
    return is_chosen(point) && !has_run(data_, point, number) && data_.failure_of(point) == nullptr;
  }

  // Checked at the start, not after an hour.
  void require_nodes(int first, int last) const {
    std::set<int> points;
    for (int number = first; number <= last; ++number) {
      for (const int point : points_of_round(data_, number)) {
        if (is_to_run(point, number)) points.insert(point);
      }
    }
    for (const int point : points) {
      const Point& next = data_.points[static_cast<std::size_t>(point)];
      if (is_over_nodes(next)) require_allocation(next.facts->ranks, ranks_per_node());
    }
  }

  bool is_over_nodes(const Point& point) const { return folder_.config_of(point).launch.mode == LaunchMode::external; }
  int ranks_per_node() const { return static_cast<int>(data_.config.study.slurm.ranks_per_node.value_or(0)); }

  const MeasureConfig& measure_config() const { return data_.config.study.measure; }
  // The baseline runs in every round; otherwise there are no ratios within it.
  bool is_chosen(int point) const {
    return chosen_.empty() || chosen_[static_cast<std::size_t>(point)] || point == data_.baseline;
  }

  double minutes_gone() const { return std::chrono::duration<double, std::ratio<60>>(Clock::now() - began_).count(); }

  // Expected seconds of a round of this point: those of its last round, else the others' mean.
  double expected_seconds(int point) const {
    double sum = 0, count = 0;
    for (auto round = data_.rounds.rbegin(); round != data_.rounds.rend(); ++round) {
      if (round->point == point) return round->seconds;
      sum += round->seconds, count += 1;
    }
    return count > 0 ? sum / count : 0;
  }

  bool is_over_budget(int point) const {
    const Auto<double>& minutes = data_.config.study.budget.minutes;
    return !minutes.is_auto() && minutes_gone() + expected_seconds(point) / 60 > minutes;
  }

  // The processes of a round of a point, one after the other; for losses including the runs that must be trained before.
  std::vector<ProcessSpec> processes_of(const Point& point, const fs::path& folder, int number) const {
    ProcessSpec spec;
    spec.output = folder / fmt::format("round-{}.json", number);
    spec.log = folder / fmt::format("round-{}.log", number);
    std::vector<ProcessSpec> specs;
    const auto add = [&](std::vector<std::string> arguments, const fs::path& log) {
      ProcessSpec& next = specs.emplace_back(spec);
      next.argv = std::move(arguments);
      next.argv.insert(next.argv.begin(), options_.program);
      if (is_over_nodes(point)) next = srun_step(next.argv, point.facts->ranks, ranks_per_node());
      next.output = spec.output;
      next.log = log;
      next.deadline = milliseconds(static_cast<std::int64_t>(1e3 * data_.config.study.budget.point_timeout_s));
    };
    if (!is_of_losses()) {
      add(benchmark_of(point), spec.log);
      return specs;
    }
    for (TrainingRun& run : training_runs(folder_, point, spec.log.filename().string())) {
      fs::remove_all(run.run_directory);
      create_private_directories(run.run_directory.parent_path());
      add(std::move(run.arguments), folder / run.log);
    }
    return specs;
  }

  // False if it was interrupted: then nothing of it is kept.
  bool measure_point(const Point& point, int number) {
    const fs::path folder = folder_.prepare(point);
    Round round{.point = point.index, .round = number, .started = utc_now(), .host = host_name(), .log = ""};
    ProcessEnd end;
    ProcessSpec last;
    try {
      for (ProcessSpec& spec : processes_of(point, folder, number)) {
        last = std::move(spec);
        round.log = fs::relative(last.log, folder_.path()).string();
        end = run_process(last, options_.stop ? options_.stop : [] { return false; });
        if (end.interrupted) return false;
        round.seconds += end.seconds;
        if (!end.ok()) break;
      }
      judge(round, end, last, point);
    } catch (const ConfigError& error) {
      round.outcome = Outcome::failed, round.message = error.what();
    }
    std::error_code ignored;
    fs::remove(last.output, ignored);
    const bool failed = round.outcome != Outcome::ok;
    folder_.add(std::move(round));
    tell();
    if (failed) require_devices(folder, number);
    return true;
  }

  bool is_of_losses() const { return data_.config.study.scaling == Scaling::isoflop; }

  std::vector<std::string> benchmark_of(const Point& point) const {
    std::vector<std::string> argv{"bench", "step", "--config"};
    for (std::string& word : folder_.config_arguments(point)) argv.push_back(std::move(word));
    argv.insert(argv.end(), {"--steps", std::to_string(measure_config().steps), "--warmup",
                             std::to_string(measure_config().warmup), "--json", "--raw"});
    return argv;
  }

  void judge(Round& round, const ProcessEnd& end, const ProcessSpec& spec, const Point& point) const {
    if (!end.ok()) {
      Verdict verdict = verdict_of(end, read_text(spec.log, most_log_bytes), spec.deadline);
      round.outcome = verdict.outcome, round.message = std::move(verdict.message);
      return;
    }
    try {
      if (is_of_losses()) {
        round.measured = measurement_of_run(run_of(folder_, point), point.facts.value());
        return;
      }
      const nlohmann::ordered_json result = read_json_file(spec.output.string(), most_result_bytes);
      const JsonSource source{.name = spec.output.string()};
      round.measured = record_from<Measurement>(JsonField(result, source)["measurement"]);
    } catch (const ConfigError& error) {
      round.outcome = Outcome::failed, round.message = std::string("its result cannot be read: ") + error.what();
    }
  }

  // A point may leave a GPU in a state that makes the next point fail through no fault of its own.
  void require_devices(const fs::path& folder, int number) {
    if (site::choose_devices(data_.config).kind == DeviceKind::host) return;
    const ProcessSpec check{.argv = {options_.program, "study", "--check-devices"},
                            .output = folder / fmt::format("check-{}.out", number),
                            .log = folder / fmt::format("check-{}.log", number),
                            .deadline = check_deadline};
    for (int attempt = 1;; ++attempt) {
      const ProcessEnd end = run_process(check, options_.stop ? options_.stop : [] { return false; });
      if (end.ok() || end.interrupted) return;
      const std::string why = verdict_of(end, read_text(check.log, most_log_bytes), check_deadline).message;
      if (attempt < most_checks) continue;
      folder_.add(Stop{StopReason::interrupted, utc_now()});
      throw DeviceError(fmt::format("the devices do not work any more after {}: {}. Once they do, go on with: {}",
                                    folder.string(), why, go_on_command(folder_.path(), options_.round)));
    }
  }

  void tell() const {
    if (!options_.advanced) return;
    Advance advance{.round = &data_.rounds.back()};
    const config::RoundRange range = config::round_range(measure_config().rounds).value();
    double best = -std::numeric_limits<double>::infinity();
    for (const Point& point : data_.points) {
      if (point.pruning || !is_chosen(point.index)) continue;
      const auto measured = data_.measured_rounds_of(point.index);
      advance.done += static_cast<int>(data_.rounds_of(point.index).size());
      if (!measured.empty() && data_.failure_of(point.index) == nullptr) {
        const double worth = is_of_losses()
                                 ? -measured.back()->measured->validation_loss.value()
                                 : point.facts->model_flops_per_token * static_cast<double>(point.facts->tokens_per_step()) /
                                       median(round_medians(measured)) / point.facts->ranks;
        if (worth > best) best = worth, advance.best = point.index;
      }
      if (data_.failure_of(point.index) != nullptr || is_settled(measure_config(), measured)) continue;
      const int left = std::max(1, range.least - static_cast<int>(measured.size()));
      advance.left += left;
      advance.seconds_left += left * expected_seconds(point.index);
    }
    options_.advanced(advance);
  }

  StudyFolder& folder_;
  const RunnerOptions& options_;
  const StudyData& data_;
  std::vector<bool> chosen_;  // by point; empty: all
  const Clock::time_point began_ = Clock::now();
};

}  // namespace

std::vector<int> points_of_round(const StudyData& data, int number) {
  const MeasureConfig& measure = data.config.study.measure;
  std::vector<int> order;
  for (const Point& point : data.points) {
    if (!point.pruning) order.push_back(point.index);
  }
  if (measure.order == RoundOrder::shuffled) shuffle(order, data.config.run.seed, number);
  const auto failed_elsewhere = [&](int point) {
    const Round* failure = data.failure_of(point);
    return failure != nullptr && failure->round != number;
  };
  const auto is_needed = [&](int point) {
    return !failed_elsewhere(point) && !is_settled(measure, measured_besides(data, point, number));
  };
  if (std::ranges::none_of(order, is_needed)) return {};
  std::erase_if(order, [&](int point) { return point != data.baseline && !is_needed(point); });
  return order;
}

std::vector<int> missing_rounds(const StudyData& data) {
  std::vector<int> missing;
  const int most = config::round_range(data.config.study.measure.rounds).value().most;
  for (int number = 1; number <= most; ++number) {
    const auto is_missing = [&](int point) { return data.failure_of(point) == nullptr && !has_run(data, point, number); };
    if (std::ranges::any_of(points_of_round(data, number), is_missing)) missing.push_back(number);
  }
  return missing;
}

std::string go_on_command(const fs::path& folder, std::optional<int> round) {
  const std::string quoted = shell_quoted(folder.string());
  return round ? fmt::format("plait study round {} {}", quoted, *round) : "plait study --resume " + quoted;
}

StopReason measure_study(StudyFolder& folder, const RunnerOptions& options) { return Runner(folder, options).run(); }

void check_devices() {
  for (int gpu = 0; gpu < cuda_device_count(); ++gpu) {
    const Device device{DeviceKind::cuda, gpu};
    make_current(device);
    DeviceMemory memory(device);
    const Buffer buffer = memory.allocate(check_bytes);
    std::vector<std::byte> sent(check_bytes, std::byte{0x5a}), received(check_bytes);
    Stream stream(device);
    stream.ref().copy(buffer.data(), sent.data(), check_bytes);
    stream.ref().copy(received.data(), buffer.data(), check_bytes);
    stream.ref().synchronize();
    if (sent != received) throw DeviceError(to_string(device) + ": what is written to its memory is not what is read");
  }
}

}  // namespace plait::study
