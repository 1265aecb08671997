#include "ops/op_context.h"

#include <cstdint>

#include "core/error.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace plait::ops {
namespace {

void require_cuda_build(const char* what) {
  if constexpr (!PLAIT_HAS_CUDA) {
    throw DeviceError(std::string(what) +
                      ": plait was built without CUDA; configure with -DPLAIT_CUDA=ON, or use the host device");
  }
}

}  // namespace

std::size_t workspace_bytes(DeviceKind kind) {
  if (kind == DeviceKind::cuda) {
    require_cuda_build("workspace_bytes");
    if constexpr (PLAIT_HAS_CUDA) return cuda::workspace_bytes();
  }
  return cpu::workspace_bytes();
}

std::unique_ptr<OpContext> make_op_context(Device device, View workspace, const OpContextOptions& options) {
  if (device.is_cuda()) require_cuda_build("make_op_context");
  const std::size_t needed = workspace_bytes(device.kind);
  require(workspace && workspace.bytes() >= needed, "make_op_context: argument 'workspace' must have at least " +
                                                        std::to_string(needed) + " bytes, got " +
                                                        std::to_string(workspace ? workspace.bytes() : 0));
  require(reinterpret_cast<std::uintptr_t>(workspace.data) % 256 == 0,
          "make_op_context: argument 'workspace' must be 256-byte aligned");
  if constexpr (PLAIT_HAS_CUDA) {
    if (device.is_cuda()) return cuda::make_op_context(device, workspace, options);
  }
  return cpu::make_op_context(device, workspace, options);
}

}  // namespace plait::ops
