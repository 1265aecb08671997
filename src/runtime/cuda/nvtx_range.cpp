#include <nvtx3/nvToolsExt.h>

#include "runtime/profiler_range.h"

namespace plait::runtime {

ProfilerRange::ProfilerRange(const char* name) { static_cast<void>(nvtxRangePushA(name)); }
ProfilerRange::~ProfilerRange() { static_cast<void>(nvtxRangePop()); }

}  // namespace plait::runtime
