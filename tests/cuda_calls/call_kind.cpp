#include "cuda_calls/call_kind.h"

#include <array>

namespace plait {
namespace {

// By prefix, so that versions (_v2), per-thread-stream twins (_ptds, _ptsz) and later relatives are included.
struct Rule {
  std::string_view prefix;
  CallKind kind;
};

constexpr std::array rules{
    Rule{"cuStreamSynchronize", CallKind::synchronization},
    Rule{"cuEventSynchronize", CallKind::synchronization},
    Rule{"cuCtxSynchronize", CallKind::synchronization},
    Rule{"cuMemAlloc", CallKind::allocation},
    Rule{"cuMemHostAlloc", CallKind::allocation},
    Rule{"cuMemHostRegister", CallKind::allocation},
    Rule{"cuMemCreate", CallKind::allocation},
    Rule{"cuMemMap", CallKind::allocation},
    Rule{"cuMemPoolCreate", CallKind::allocation},
    Rule{"cuArrayCreate", CallKind::allocation},
    Rule{"cuMipmappedArrayCreate", CallKind::allocation},
    Rule{"cuMemHostUnregister", CallKind::free},
    Rule{"cuMemFree", CallKind::free},
    Rule{"cuMemRelease", CallKind::free},
    Rule{"cuMemUnmap", CallKind::free},
    Rule{"cuMemPoolDestroy", CallKind::free},
    Rule{"cuMemPoolTrimTo", CallKind::free},
    Rule{"cuArrayDestroy", CallKind::free},
    Rule{"cuLaunch", CallKind::launch},
    Rule{"cuGraphLaunch", CallKind::launch},
};

}  // namespace

CallKind call_kind(std::string_view function) {
  if (function.starts_with("cuLaunchHostFunc")) return CallKind::other;
  // A copy whose name lacks "Async" returns when the copy is done (cuMemcpyBatchAsync and the like do not).
  if (function.starts_with("cuMemcpy") && function.find("Async") == std::string_view::npos) return CallKind::synchronization;
  for (const Rule& rule : rules) {
    if (function.starts_with(rule.prefix)) return rule.kind;
  }
  return CallKind::other;
}

}  // namespace plait
