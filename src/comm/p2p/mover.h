// Copies between memories that one device can address.
#pragma once

#include <cstddef>

#include "core/stream.h"

namespace plait::comm::p2p {

// A kernel of the stream's device copies `bytes`; `to` and `from` do not overlap and may be a peer's memory. Uses `ctas` thread
// blocks: 16 fill an NVLink on an H200. Any alignment; both at 16 bytes is fast. CUDA streams only.
void copy_by_kernel(StreamRef stream, void* to, const void* from, std::size_t bytes, int ctas = 16);

}  // namespace plait::comm::p2p
