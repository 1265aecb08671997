// The speed of a GPU's PCIe link while data moves: an idle link is trained down, so a look at any other time is meaningless.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "topology/sysfs.h"

namespace plait::bench {

// Speeds in GT/s as in sysfs (32: Gen5), widths in lanes; 0: unknown.
struct PcieSpeed {
  double gt_per_s = 0, most_gt_per_s = 0;
  int width = 0, most_width = 0;
  bool known() const { return gt_per_s > 0 && width > 0; }
  bool is_less_than_it_could() const { return known() && (gt_per_s < most_gt_per_s || width < most_width); }
};

// "16 GT/s x8 of 32 GT/s x16"
std::string to_string(const PcieSpeed& speed);

// Samples every few milliseconds, from construction to the question.
class PcieSpeedSampler {
 public:
  // `bus_id`: "" for a device that is not a GPU, which has no speeds.
  explicit PcieSpeedSampler(std::string bus_id, topology::Sysfs sysfs = topology::Sysfs());
  PcieSpeed fastest();  // so far

 private:
  void look();

  const std::string bus_id_;
  const topology::Sysfs sysfs_;
  std::mutex mutex_;
  PcieSpeed fastest_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace plait::bench
