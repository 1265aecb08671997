// Kernels and copies as a GPU ran them, for traces: CUPTI's activity records, converted to the host's steady clock.
//
// CUPTI is opened at run time, so plait starts without it; why_missing() then says why there is nothing to show. It records the
// whole process as long as one object exists; ranks that are threads each take what ran on their own device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/stream.h"
#include "parallel/trace_events.h"

namespace plait::runtime {

class DeviceActivities {
 public:
  // Records from now until this object is destroyed. `device` is current on the calling thread.
  DeviceActivities(Device device, const std::vector<StreamRef>& streams);
  ~DeviceActivities();
  DeviceActivities(const DeviceActivities&) = delete;
  DeviceActivities& operator=(const DeviceActivities&) = delete;

  // The reason why nothing is recorded; empty when something is.
  const std::string& why_missing() const { return why_missing_; }
  // The activities that have run on the device since the last call. Call it when all of them have finished. Blocks.
  std::vector<parallel::DeviceActivity> synchronize_take();

 private:
  struct Source;
  std::unique_ptr<Source> source_;
  std::string why_missing_;
};

// A named range on the issuing thread, for profilers (NVTX). Costs next to nothing while none is attached; nothing at all where
// plait is built without CUDA.
class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace plait::runtime
