// Takes the place of src/runtime/cuda if plait is built without CUDA.
#include "core/error.h"
#include "runtime/cuda_graph.h"
#include "runtime/device_activities.h"

namespace plait::runtime {

ProfilerRange::ProfilerRange(const char*) {}
ProfilerRange::~ProfilerRange() = default;

struct DeviceActivities::Source {};

DeviceActivities::DeviceActivities(Device, const std::vector<StreamRef>&) : why_missing_("this plait was built without CUDA") {}
DeviceActivities::~DeviceActivities() = default;
std::vector<parallel::DeviceActivity> DeviceActivities::synchronize_take() { return {}; }

struct CudaGraph::Executable {};

CudaGraph::CudaGraph(StreamRef, const std::vector<StreamRef>&, const std::function<void()>&) {
  throw DeviceError("this plait was built without CUDA");
}
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph::~CudaGraph() = default;
void CudaGraph::launch(StreamRef, std::size_t) const {}
std::size_t CudaGraph::nodes() const { return 0; }

void add_on_stream(StreamRef, std::uint32_t*, std::uint32_t) { throw DeviceError("this plait was built without CUDA"); }

}  // namespace plait::runtime
