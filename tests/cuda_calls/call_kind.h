// Sorts the functions of the CUDA driver API by what they cost a training step.
#pragma once

#include <string_view>

namespace plait {

enum class CallKind { other, synchronization, allocation, free, launch };

// `function` is a name as CUPTI gives it: "cuMemcpyHtoD_v2", "cuStreamSynchronize_ptsz".
CallKind call_kind(std::string_view function);

}  // namespace plait
