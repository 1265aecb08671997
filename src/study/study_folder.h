// A study's folder while it is measured: made, owned and appended to by one process. study_data.h says what is in it.
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

class StudyFolder {
 public:
  // ConfigError where another process owns it, or it is no study's. Cuts off a line that a crash left half-written.
  explicit StudyFolder(const std::filesystem::path& folder);

  StudyData& data() { return data_; }
  const std::filesystem::path& path() const { return data_.folder; }
  const std::string& warning() const { return lock_.warning(); }

  // On the disk, and in data(), when it returns.
  void add(Round round);
  void add(Stop stop);

  // points/NUMBER, with the point's config.yaml, made if need be; and the arguments that give that configuration to a command:
  // the file, and `--set`.
  std::filesystem::path prepare(const Point& point) const;
  std::vector<std::string> config_arguments(const Point& point) const;

 private:
  void append(const nlohmann::ordered_json& line);
  checkpoint::RunLock lock_;
  StudyData data_;
  File results_;
};

std::string utc_now();  // "2026-11-23T03:05:17Z"

}  // namespace plait::study
