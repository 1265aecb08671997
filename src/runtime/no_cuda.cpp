// What stands for src/runtime/cuda where plait is built without CUDA.
#include "runtime/device_activities.h"
#include "runtime/profiler_range.h"

namespace plait::runtime {

ProfilerRange::ProfilerRange(const char*) {}
ProfilerRange::~ProfilerRange() = default;

struct DeviceActivities::Source {};

DeviceActivities::DeviceActivities(Device, const std::vector<StreamRef>&) : why_missing_("this plait was built without CUDA") {}
DeviceActivities::~DeviceActivities() = default;
std::vector<parallel::DeviceActivity> DeviceActivities::synchronize_take() { return {}; }

}  // namespace plait::runtime
