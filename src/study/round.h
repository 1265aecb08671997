// A round of a point: one process tree that measured it once, with its outcome.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/names.h"
#include "parallel/ledger.h"

namespace plait::study {

// The end of a round. All outcomes but `ok` end their point.
enum class Outcome { ok, out_of_memory, failed, timed_out };

// Conditions of one device during the measured steps, which may explain noise. Empty if the driver does not tell.
struct DeviceConditions {
  std::string device;                                                // "cuda:0"
  std::string name = {};                                             // "NVIDIA H200"
  std::optional<double> sm_clock_mhz = {}, least_sm_clock_mhz = {};  // mean and minimum
  std::optional<double> power_w = {};                                // mean
  std::optional<double> temperature_c = {};                          // maximum
  std::optional<double> energy_j = {};                               // of all measured steps together
  std::vector<std::string> throttle_reasons = {};                    // those seen at least once: "sw_power_cap"
};

// Memory of one rank's device.
struct RankMemory {
  double planned_bytes = 0;    // by the memory plan
  double allocated_bytes = 0;  // by plait
  double device_bytes = 0;     // in use on the device at the end, including the libraries' share
};

struct Measurement {
  std::vector<double> step_ms;                 // every measured step, in order, of rank 0
  std::vector<parallel::Ledger> ledgers;       // by rank, means over the measured steps
  std::vector<RankMemory> memory;              // by rank
  std::vector<DeviceConditions> devices = {};  // of rank 0's host; empty on CPUs
  std::optional<double> peak_flops = {};       // of one device, counted as an MFU of 1
  std::optional<double> load = {};             // the load average of the minute: processes that ran or wanted to
  std::int64_t tokens_per_step = 0;
  std::optional<double> loss = {};             // of the last step
  std::optional<double> validation_loss = {};  // of the last step, if the study measures losses
  std::optional<std::int64_t> tokens = {};     // trained on until then, if the study measures losses
};

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
