// How many threads one matrix product on the host may use.
#pragma once

namespace plait::ops {

// For the whole process; 1 makes every product run in the thread of its stream, which is right when there are at least as many
// ranks in the process as cores. The launcher calls it once, before any stream exists. InternalError for threads < 1.
void set_blas_threads(int threads);

}  // namespace plait::ops
