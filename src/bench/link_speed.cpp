#include "bench/link_speed.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include "core/statistics.h"
#include "core/stream.h"
#include "topology/discover.h"
#include "topology/routes.h"

namespace plait::bench {
namespace {

std::optional<int> node_of(const topology::Routes& routes, const std::string& bus_id) {
  for (const int gpu : routes.gpus()) {
    if (routes.graph().nodes[static_cast<std::size_t>(gpu)].bus_id == bus_id) return gpu;
  }
  return std::nullopt;
}

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

std::optional<double> nominal_rate(const comm::p2p::PairFacts& facts) {
  const bool gpus = facts.sender.kind == DeviceKind::cuda && facts.receiver.kind == DeviceKind::cuda;
  if (!gpus || !facts.same_host() || facts.sender.bus_id == facts.receiver.bus_id) return std::nullopt;
  static const topology::Routes routes(
      topology::discover_live().graph);  // the host does not change, and discovery takes a while
  const auto from = node_of(routes, facts.sender.bus_id), to = node_of(routes, facts.receiver.bus_id);
  if (!from || !to) return std::nullopt;
  const double rate = routes.summary_of(*from, routes.path(*from, *to)).gb_per_s;
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

std::string slow_text(const std::string& pair, double gb_per_s, double nominal) {
  return fmt::format(
      "warning: {}: {:.1f} GB/s are {:.0f} % of the {:.1f} that its link should carry: a link that runs with fewer "
      "lanes or at a lower generation, other work on it, or an IOMMU in the way (`plait topo` looks for them)",
      pair, gb_per_s, 100 * gb_per_s / nominal, nominal);
}

PlainCopy synchronize_plain_copy(Device from, Device to, std::size_t bytes) {
  constexpr int repeats = 5;
  DeviceMemory there(to);
  const Buffer target = there.allocate(bytes);
  DeviceMemory here(from);  // last: allocating makes its device current
  const Buffer source = here.allocate(bytes);
  const Stream stream(from, StreamPriority::high);
  const StreamRef s = stream.ref();
  s.zero(source.data(), bytes);
  s.copy(target.data(), source.data(), bytes);
  Event start(from, EventTiming::on), stop(from, EventTiming::on);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    s.record(start);
    s.copy(target.data(), source.data(), bytes);
    s.record(stop);
    stop.synchronize();
    times.push_back(1e3 * static_cast<double>(elapsed_ms(start, stop)));
  }
  const double microseconds = median(times);
  return {bytes, microseconds, gb_per_s(static_cast<double>(bytes), microseconds)};
}

std::string PcieSpeed::text() const {
  return fmt::format("{:g} GT/s x{} of {:g} GT/s x{}", gt_per_s, width, most_gt_per_s, most_width);
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
