#include "comm/p2p/mover.h"

#include "core/error.h"

namespace plait::comm::p2p {

void copy_all(StreamRef stream, std::span<const Copy> copies) {
  require(copies.size() <= most_copies, "copy_all: at most most_copies");
  if (stream.device().is_cuda()) return copy_all_by_kernel(stream, copies);
  for (const Copy& copy : copies) {
    if (copy.bytes > 0) stream.copy(copy.to, copy.from, copy.bytes);
  }
}

}  // namespace plait::comm::p2p
