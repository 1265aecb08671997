// What is known of a link besides plait's messages: its nominal rate, a plain copy over it, and the speed of a GPU's PCIe link.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/p2p/facts.h"
#include "core/device.h"
#include "topology/sysfs.h"

namespace plait::bench {

// GB/s in one direction, from the topology of this host (topology/nominal.h), without any measurement. nullopt for CPUs, for
// ranks on two hosts, and if this host's discovery does not find both GPUs. For an end of the pair that is on this host.
std::optional<double> nominal_rate(const comm::p2p::PairFacts& facts);

using NominalRate = std::function<std::optional<double>(const comm::p2p::PairFacts&)>;

// Below this part of the nominal rate something is wrong with a pair.
inline constexpr double least_of_nominal = 0.7;
// "warning: 0 -> 1: 12.3 GB/s are 34 % of the 36.0 that its link should carry: ..."; `pair`: "0 -> 1".
std::string slow_text(const std::string& pair, double gb_per_s, double nominal);

// A copy from GPU to GPU without peer access: the driver moves it through host memory.
struct PlainCopy {
  std::size_t bytes = 0;
  double microseconds = 0;  // median
  double gb_per_s = 0;
};

// Call it before anything in this process has enabled peer access between the two, since that cannot be detected afterwards.
// Libraries enable it too (NCCL does). Leaves `from` current.
PlainCopy synchronize_plain_copy(Device from, Device to, std::size_t bytes);

// Speeds in GT/s as in sysfs (32: Gen5), widths in lanes; 0: unknown.
struct PcieSpeed {
  double gt_per_s = 0, most_gt_per_s = 0;
  int width = 0, most_width = 0;
  bool known() const { return gt_per_s > 0 && width > 0; }
  bool is_less_than_it_could() const { return known() && (gt_per_s < most_gt_per_s || width < most_width); }
  std::string text() const;  // "16 GT/s x8 of 32 GT/s x16"
};

// Samples every few milliseconds, from construction to the question: an idle link is trained down, so a look while no data
// moves is meaningless.
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
