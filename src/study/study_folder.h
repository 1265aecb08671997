// A study's folder while it is measured: made, owned and appended to by one process, or round by round by one for each.
// study_data.h says what is in it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_lock.h"
#include "core/config.h"
#include "core/file.h"
#include "study/point.h"
#include "study/round.h"
#include "study/study_data.h"

namespace plait::study {

// A new one, numbered like a run's. In the order in which a crash leaves either a folder that --resume goes on with, or one
// without points, in which nothing was measured.
std::filesystem::path create_study(const Config& study, const train::Environment& environment,
                                   const nlohmann::ordered_json& topology, const std::vector<Point>& points);

// What create_study() keeps besides the study's configuration, in a folder that has that; each point's configuration too
// where `prepared`. points.jsonl comes last.
void keep_points(const std::filesystem::path& folder, const train::Environment& environment,
                 const nlohmann::ordered_json& topology, const std::vector<Point>& points, bool prepared);

class StudyFolder {
 public:
  // ConfigError where another process owns it or one of its tasks, or it is no study's. Cuts off a line that a crash left
  // half-written.
  explicit StudyFolder(const std::filesystem::path& folder);
  // The same of the task that measures round `number`, which owns only that task's folder; data() has what others had measured
  // by now. ConfigError too where the study is not under Slurm, or has no round of this number.
  StudyFolder(const std::filesystem::path& folder, int number);

  StudyData& data() { return data_; }
  const StudyData& data() const { return data_; }
  const std::filesystem::path& path() const { return data_.folder; }
  const std::string& warning() const { return locks_.front().warning(); }

  // On the disk, and in data(), when it returns.
  void add(Round round);
  void add(Stop stop);

  // points/NUMBER, with the point's config.yaml, made if need be; and the arguments that give that configuration to a command:
  // the file, and `--set`.
  std::filesystem::path prepare(const Point& point) const;
  // Of a point that is not pruned, with the schedule from a file that was kept.
  Config config_of(const Point& point) const;
  std::vector<std::string> config_arguments(const Point& point) const;

 private:
  void append(const nlohmann::ordered_json& line);
  std::vector<checkpoint::RunLock> locks_;
  StudyData data_;
  File results_;
};

std::string utc_now();  // "2026-11-23T03:05:17Z"

}  // namespace plait::study
