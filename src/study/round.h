// A round of a point: one process tree that measured it once, with its outcome.
#pragma once

#include <optional>
#include <string>

#include "core/names.h"
#include "train/report/measurement.h"

namespace plait::study {

// The end of a round. All outcomes but `ok` end their point.
enum class Outcome { ok, out_of_memory, failed, timed_out };

using train::DeviceConditions, train::Measurement, train::RankMemory;

struct Round {
  int point = 0;
  int round = 1;  // of the study: rounds with the same number ran one after the other, in shuffled order
  Outcome outcome = Outcome::ok;
  std::string started;  // "2026-11-23T03:05:17Z"
  double seconds = 0;   // of the process tree, including start-up
  std::string host;
  std::string message = {};                  // the first line of the error; "" without one
  std::string log;                           // the child's standard error, relative to the study's folder
  std::optional<Measurement> measured = {};  // set if ok
};

}  // namespace plait::study

namespace plait {
template <>
inline constexpr auto names<study::Outcome> =
    std::to_array<Name<study::Outcome>>({{study::Outcome::ok, "ok"},
                                         {study::Outcome::out_of_memory, "out of memory"},
                                         {study::Outcome::failed, "failed"},
                                         {study::Outcome::timed_out, "timed out"}});
}  // namespace plait
