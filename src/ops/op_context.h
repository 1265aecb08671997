// State shared by the operations of one rank: library handles, chosen algorithms and scratch memory.
//
// One OpContext serves one device and one stream at a time: two streams of a rank need two contexts, because the scratch memory
// is reused from op to op in stream order. No op allocates device memory; all scratch comes from `workspace`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/stream.h"
#include "core/view.h"
#include "ops/attention_shape.h"

namespace plait::ops {

struct OpContextOptions {
  // Same bits on every run: no atomics in attention's backward, and the library's first matrix-product algorithm instead of the
  // fastest of those timed.
  bool deterministic = false;
  // Candidates timed per matrix-product shape when not deterministic; 1 takes the library's first choice untimed.
  int matmul_candidates = 12;
};

class OpContext {
 public:
  virtual ~OpContext() = default;
  virtual Device device() const = 0;
  virtual const OpContextOptions& options() const = 0;
  // Scratch memory of the context; valid in stream order until the next op that uses the context.
  virtual View workspace() const = 0;
  // While tuning is on (the default after construction), the first call of an op with a new shape may time candidates. That
  // blocks the host and fills the op's outputs with garbage before they are computed (outputs that are accumulated into are
  // saved first). After set_tuning(false), a new shape uses the library's first choice and is counted in untuned_shapes().
  virtual void set_tuning(bool on) = 0;
  virtual int untuned_shapes() const = 0;
  // The choices made so far, one line of text each. Stored with a run and given to another context (same device model, same
  // library versions), they make it choose the same. adopt_choices returns the number of lines it could not use.
  virtual std::vector<std::string> choices() const = 0;
  virtual int adopt_choices(const std::vector<std::string>& choices) = 0;
};

// The needs that determine a context's workspace: the largest attention it will be asked for.
struct WorkspaceNeeds {
  AttentionShape attention;  // all zero: no attention
  DType compute = DType::bf16;
  bool deterministic = false;
};

// Bytes of workspace for a context on this kind of device; plain arithmetic, so memory can be planned without a device. The
// caller carves it from its arena. Attention's part is an upper bound on the observed requests of cuDNN 9; if a library wants
// more, the ops throw InternalError naming both numbers.
std::size_t workspace_bytes(DeviceKind kind, const WorkspaceNeeds& needs);

// `workspace` must be device memory, 256-byte aligned, outliving the context, of at least workspace_bytes(device.kind, {}).
std::unique_ptr<OpContext> make_op_context(Device device, View workspace, const OpContextOptions& options = {});

}  // namespace plait::ops
