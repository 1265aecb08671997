// How fast a GPU's PCIe link runs while data moves: it is trained down when it idles, so a look at any other time says nothing.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "topology/sysfs.h"

namespace plait::bench {

// Speeds in GT/s as sysfs has them (32: Gen5), widths in lanes; 0: not told.
struct PcieSpeed {
  double gt_per_s = 0, most_gt_per_s = 0;
  int width = 0, most_width = 0;
  bool known() const { return gt_per_s > 0 && width > 0; }
  bool is_less_than_it_could() const { return known() && (gt_per_s < most_gt_per_s || width < most_width); }
};

// "16 GT/s x8 of 32 GT/s x16"
std::string to_string(const PcieSpeed& speed);

// Looks every few milliseconds, from when it is made to when it is asked.
class PcieSpeedSampler {
 public:
  // `bus_id`: "" for a device that is no GPU, of which nothing is told.
  explicit PcieSpeedSampler(std::string bus_id, topology::Sysfs sysfs = topology::Sysfs());
  PcieSpeed fastest();  // that was seen by now

 private:
  void look();

  const std::string bus_id_;
  const topology::Sysfs sysfs_;
  std::mutex mutex_;
  PcieSpeed fastest_;
  std::jthread thread_;  // the last: it uses the others
};

}  // namespace plait::bench
