#include "bench/pcie_speed.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace plait::bench {
namespace {

constexpr std::chrono::milliseconds look_interval{5};
constexpr int most_lanes = 32;  // virtual machines have 255 for "not known"

// "32.0 GT/s PCIe"
double speed_in(const std::filesystem::path& file) {
  return std::max(0.0, std::strtod(topology::read_line(file).value_or("").c_str(), nullptr));
}

int width_in(const std::filesystem::path& file) {
  const std::int64_t width = topology::read_integer(file).value_or(0);
  return width > 0 && width <= most_lanes ? static_cast<int>(width) : 0;
}

}  // namespace

std::string to_string(const PcieSpeed& speed) {
  return fmt::format("{:g} GT/s x{} of {:g} GT/s x{}", speed.gt_per_s, speed.width, speed.most_gt_per_s, speed.most_width);
}

PcieSpeedSampler::PcieSpeedSampler(std::string bus_id, topology::Sysfs sysfs)
    : bus_id_(std::move(bus_id)), sysfs_(std::move(sysfs)) {
  if (bus_id_.empty()) return;
  fastest_.most_gt_per_s = speed_in(sysfs_.pci(bus_id_) / "max_link_speed");
  fastest_.most_width = width_in(sysfs_.pci(bus_id_) / "max_link_width");
  thread_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      look();
      std::this_thread::sleep_for(look_interval);
    }
  });
}

void PcieSpeedSampler::look() {
  const double speed = speed_in(sysfs_.pci(bus_id_) / "current_link_speed");
  const int width = width_in(sysfs_.pci(bus_id_) / "current_link_width");
  const std::lock_guard lock(mutex_);
  fastest_.gt_per_s = std::max(fastest_.gt_per_s, speed);
  fastest_.width = std::max(fastest_.width, width);
}

PcieSpeed PcieSpeedSampler::fastest() {
  const std::lock_guard lock(mutex_);
  return fastest_;
}

}  // namespace plait::bench
