// What stands for src/parallel/cuda where plait is built without CUDA.
#include "parallel/profiler_range.h"

namespace plait::parallel {

ProfilerRange::ProfilerRange(const char*) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace plait::parallel
