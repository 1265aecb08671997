// The host's op context. It has nothing to tune and no library handles; scratch comes from the C++ heap, which is cheap on the
// host, so the workspace stays unused.
#include "core/error.h"
#include "ops/implementations.h"

namespace plait::ops::cpu {
namespace {

class HostOpContext final : public OpContext {
 public:
  HostOpContext(Device device, View workspace, const OpContextOptions& options)
      : device_(device), workspace_(workspace), options_(options) {}

  Device device() const override { return device_; }
  const OpContextOptions& options() const override { return options_; }
  View workspace() const override { return workspace_; }
  void set_tuning(bool) override {}
  int untuned_shapes() const override { return 0; }
  std::vector<std::string> choices() const override { return {}; }
  int adopt_choices(const std::vector<std::string>& choices) override { return static_cast<int>(choices.size()); }

 private:
  Device device_;
  View workspace_;
  OpContextOptions options_;
};

}  // namespace

std::size_t workspace_bytes() { return 256; }  // the unit of allocation, so that every context has a workspace

std::unique_ptr<OpContext> make_op_context(Device device, View workspace, const OpContextOptions& options) {
  return std::make_unique<HostOpContext>(device, workspace, options);
}

std::size_t attention_workspace_bytes(OpContext&, const AttentionShape&, DType) { return 0; }

}  // namespace plait::ops::cpu
