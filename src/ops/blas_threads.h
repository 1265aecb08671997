// The number of threads that one matrix product on the host may use.
#pragma once

namespace plait::ops {

// Applies to the whole process. With 1, every product runs in its stream's own thread, which is right when the process has at
// least as many ranks as cores. The launcher calls it once, before any stream exists. InternalError for threads < 1.
void set_blas_threads(int threads);

}  // namespace plait::ops
