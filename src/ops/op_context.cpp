#include "ops/op_context.h"

#include <cstdint>

#include "core/error.h"
#include "ops/implementations.h"

namespace plait::ops {
namespace {

void require_cuda_build(const char* what) {
  if constexpr (!PLAIT_HAS_CUDA) {
    throw DeviceError(std::string(what) +
                      ": plait was built without CUDA; configure with -DPLAIT_CUDA=ON, or use the host device");
  }
}

}  // namespace

std::size_t workspace_bytes(DeviceKind kind, const WorkspaceNeeds& needs) {
  if (kind == DeviceKind::host) return cpu::workspace_bytes();
  // Matrix products use 64 MiB of it; sorting tokens and two-stage reductions fit in the rest.
  constexpr std::size_t base = std::size_t{192} << 20;
  const AttentionShape& a = needs.attention;
  const auto query_heads = static_cast<std::size_t>(a.batch * a.heads * a.sequence);
  // Backward accumulates dQ in f32. The deterministic algorithm keeps one such partial per tile of 128 keys and adds them up;
  // grouped KV heads get full-width f32 gradients of K and V first.
  const auto key_tiles = static_cast<std::size_t>((a.sequence + 127) / 128);
  const std::size_t partials = (needs.deterministic ? key_tiles : 1) + (a.kv_heads < a.heads ? 2 : 0);
  const std::size_t row_statistics = 16 * query_heads;
  return base + query_heads * static_cast<std::size_t>(a.head_dim) * 4 * partials + row_statistics;
}

std::unique_ptr<OpContext> make_op_context(Device device, View workspace, const OpContextOptions& options) {
  if (device.is_cuda()) require_cuda_build("make_op_context");
  const std::size_t needed = workspace_bytes(device.kind, {});
  require(workspace && workspace.bytes() >= needed, "make_op_context: argument 'workspace' must have at least " +
                                                        std::to_string(needed) + " bytes, got " +
                                                        std::to_string(workspace ? workspace.bytes() : 0));
  require(reinterpret_cast<std::uintptr_t>(workspace.data) % 256 == 0,
          "make_op_context: argument 'workspace' must be 256-byte aligned");
  return device.is_cuda() ? cuda::make_op_context(device, workspace, options)
                          : cpu::make_op_context(device, workspace, options);
}

}  // namespace plait::ops
