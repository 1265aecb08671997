#include "bench/condition_sampler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/error.h"

namespace plait::bench {
namespace {

constexpr std::chrono::milliseconds sample_interval{100};

}  // namespace

std::vector<SampledGpu> sampled_gpus(const topology::Nvml& nvml, const std::vector<Device>& devices) {
  std::vector<SampledGpu> found;
  const bool any = std::ranges::any_of(devices, [](Device device) { return device.is_cuda(); });
  for (const std::string& bus_id : any ? nvml.gpus() : std::vector<std::string>()) {
    try {
      const Device device = cuda_device_on_bus(bus_id);
      if (std::ranges::find(devices, device) != devices.end()) found.push_back({device, bus_id});
    } catch (const DeviceError&) {
      continue;  // this process does not see it
    }
  }
  std::ranges::sort(found, {}, &SampledGpu::device);
  return found;
}

ConditionSampler::ConditionSampler(const topology::Nvml& nvml, std::vector<SampledGpu> gpus)
    : nvml_(nvml), gpus_(std::move(gpus)) {}

void ConditionSampler::begin() {
  if (gpus_.empty()) return;
  records_.assign(gpus_.size(), {});
  sample();
  thread_ = std::jthread([this](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, stop, sample_interval, [] { return false; }) && !stop.stop_requested()) sample();
  });
}

void ConditionSampler::sample() {
  for (std::size_t n = 0; n < gpus_.size(); ++n) {
    const topology::GpuConditions now = nvml_.conditions(gpus_[n].bus_id);
    Record& record = records_[n];
    if (now.sm_clock_mhz) {
      record.least_clock = record.clock_count > 0 ? std::min(record.least_clock, *now.sm_clock_mhz) : *now.sm_clock_mhz;
      record.clock_sum += *now.sm_clock_mhz, record.clock_count += 1;
    }
    if (now.power_w) record.power_sum += *now.power_w, record.power_count += 1;
    if (now.temperature_c) record.temperature = std::max(record.temperature.value_or(*now.temperature_c), *now.temperature_c);
    if (now.energy_j) {
      if (!record.first_energy) record.first_energy = now.energy_j;
      record.last_energy = now.energy_j;
    }
    record.reasons.insert(now.throttle_reasons.begin(), now.throttle_reasons.end());
  }
}

std::vector<train::DeviceConditions> ConditionSampler::end() {
  std::vector<train::DeviceConditions> list;
  if (records_.empty()) return list;
  thread_ = {};  // stops it, and waits for its end
  sample();
  for (std::size_t n = 0; n < gpus_.size(); ++n) {
    const Record& record = records_[n];
    train::DeviceConditions& device = list.emplace_back();
    device.device = to_string(gpus_[n].device);
    device.name = nvml_.name(gpus_[n].bus_id).value_or("");
    if (record.clock_count > 0) {
      device.sm_clock_mhz = record.clock_sum / record.clock_count;
      device.least_sm_clock_mhz = record.least_clock;
    }
    if (record.power_count > 0) device.power_w = record.power_sum / record.power_count;
    device.temperature_c = record.temperature;
    if (record.last_energy) device.energy_j = *record.last_energy - *record.first_energy;
    device.throttle_reasons.assign(record.reasons.begin(), record.reasons.end());
  }
  records_.clear();
  return list;
}

}  // namespace plait::bench
