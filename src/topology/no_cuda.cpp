// GPU functions for a build without CUDA: there are no GPUs.
#include "core/error.h"
#include "topology/gpu_path.h"

namespace plait::topology {

std::vector<std::string> cuda_gpus() { return {}; }
std::string bus_id_of_gpu(int) { throw DeviceError("this plait was built without CUDA"); }
std::string fabric_clique_of_gpu(const std::string&) { throw DeviceError("this plait was built without CUDA"); }
PathFacts gpu_path(int, const std::string&, const std::string&) { throw DeviceError("this plait was built without CUDA"); }

}  // namespace plait::topology
