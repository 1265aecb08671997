#include "cuda_calls/call_kind.h"
#include "cuda_calls/cuda_calls.h"

namespace plait {

std::string CudaCallCounts::report() const {
  std::string text;
  for (const auto& [name, count] : calls) {
    const CallKind kind = call_kind(name);
    if (kind == CallKind::other || kind == CallKind::launch) continue;
    text += (text.empty() ? "" : ", ") + name + " x " + std::to_string(count);
  }
  return text.empty() ? "no synchronization, allocation or free" : text;
}

}  // namespace plait
