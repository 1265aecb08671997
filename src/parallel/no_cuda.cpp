// What stands for src/parallel/cuda where plait is built without CUDA.
#include "parallel/device_activities.h"
#include "parallel/profiler_range.h"

namespace plait::parallel {

ProfilerRange::ProfilerRange(const char*) {}
ProfilerRange::~ProfilerRange() = default;

struct DeviceActivities::Source {};

DeviceActivities::DeviceActivities(Device, const std::vector<StreamRef>&) : why_missing_("this plait was built without CUDA") {}
DeviceActivities::~DeviceActivities() = default;
std::vector<DeviceActivity> DeviceActivities::synchronize_take() { return {}; }

}  // namespace plait::parallel
