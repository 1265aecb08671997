// The counter of a build without CUDA, so that GPU tests compile everywhere and skip.
#include "core/error.h"
#include "cuda_calls/cuda_calls.h"

namespace plait {

class CudaCallCounter::Subscription {};

CudaCallCounter::CudaCallCounter() { throw DeviceError("CudaCallCounter: this plait was built without CUDA"); }
CudaCallCounter::~CudaCallCounter() = default;
CudaCallCounts CudaCallCounter::stop() { return {}; }

}  // namespace plait
