#include "comm/communicator.h"

#include "comm/backends.h"
#include "comm/meeting.h"
#include "core/error.h"

namespace plait::comm {

std::unique_ptr<Communicator> make_communicator(const GroupSpec& spec, Rendezvous& store) {
  require(!spec.name.empty(), "a group needs a name");
  require(spec.size >= 1 && spec.rank >= 0 && spec.rank < spec.size, "the group's rank is outside the group");
  require(spec.timeout.count() > 0, "the group's timeout must be positive");
  if (spec.size == 1) return make_single_rank_communicator(spec);
  Meeting meeting(store, spec.name, spec.rank, spec.size, spec.timeout);
  if (!spec.device.is_cuda()) return make_gloo_communicator(spec, meeting);
  if constexpr (PLAIT_HAS_CUDA) {
    return make_nccl_communicator(spec, meeting);
  } else {
    throw DeviceError("group '" + spec.name + "' needs " + to_string(spec.device) + ", but plait was built without CUDA");
  }
}

std::string backend_name(DeviceKind kind) {
  if (kind == DeviceKind::host) return gloo_backend_name();
  if constexpr (PLAIT_HAS_CUDA) {
    return nccl_backend_name();
  } else {
    throw DeviceError("plait was built without CUDA, so it has no communication backend for GPUs");
  }
}

}  // namespace plait::comm
