// Peak rates of known devices, for MFU and for predictions.
#pragma once

#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace plait::topology {

// Dense (no sparsity) peak in FLOP/s of the device with this name (core/device.h device_name), for matrix products in `dtype`
// with fp32 accumulation: bf16 on tensor cores (fp16 on Volta, which has no bf16), likewise e4m3, f32 outside. nullopt for
// other types and for devices that the table does not know, including slices of a device (MIG) and mobile versions.
std::optional<double> peak_flops(std::string_view device_name, DType dtype);

}  // namespace plait::topology
