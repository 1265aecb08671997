// A study's folder while it is measured: made, owned and appended to by one process, or by one process per round. study_data.h
// describes its contents.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_lock.h"
#include "config/config.h"
#include "core/file.h"
#include "study/point.h"
#include "study/study_data.h"

namespace plait::study {

// A new folder, numbered like a run's. It is written in such an order that a crash leaves either a folder that --resume can
// continue, or one without points, in which nothing was measured.
std::filesystem::path create_study(const Config& study, const train::Environment& environment,
                                   const nlohmann::ordered_json& topology, const std::vector<Point>& points);

// Adds create_study()'s other files to a folder that has the study's configuration; each point's configuration too if
// `prepared`. points.jsonl comes last.
void keep_points(const std::filesystem::path& folder, const train::Environment& environment,
                 const nlohmann::ordered_json& topology, const std::vector<Point>& points, bool prepared);

class StudyFolder {
 public:
  // ConfigError if another process owns it or one of its tasks, or it is not a study's. Cuts off a line that a crash left
  // half-written.
  explicit StudyFolder(const std::filesystem::path& folder);
  // For the task that measures round `number`: owns only that task's folder; data() includes what others have measured so far.
  // ConfigError too if the study is not under Slurm, or has no round of this number.
  StudyFolder(const std::filesystem::path& folder, int number);

  StudyData& data() { return data_; }
  const StudyData& data() const { return data_; }
  const std::filesystem::path& path() const { return data_.folder; }
  const std::string& warning() const { return locks_.front().warning(); }

  // The record is on the disk, and in data(), when this returns.
  void add(Round round);
  void add(Stop stop);

  // points/NUMBER, with the point's config.yaml, made if necessary; and the arguments that give that configuration to a
  // command: the file, and `--set`.
  std::filesystem::path prepare(const Point& point) const;
  // The configuration of a point that is not pruned, with the kept schedule file.
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
