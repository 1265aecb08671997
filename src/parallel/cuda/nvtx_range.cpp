#include <nvtx3/nvToolsExt.h>

#include "parallel/profiler_range.h"

namespace plait::parallel {

ProfilerRange::ProfilerRange(const char* name) { static_cast<void>(nvtxRangePushA(name)); }
ProfilerRange::~ProfilerRange() { static_cast<void>(nvtxRangePop()); }

}  // namespace plait::parallel
