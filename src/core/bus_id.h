// PCI addresses in one form.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plait {

// "00000000:1B:00.0" (as NVML has it) and "0000:1B:00.0" (as CUDA has it) become "0000:1b:00.0", as the kernel names devices.
// nullopt where the text is not a PCI address.
std::optional<std::string> bus_id_from(std::string_view text);

}  // namespace plait
