// Converts PCI addresses to one form.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plait {

// "00000000:1B:00.0" (NVML's form) and "0000:1B:00.0" (CUDA's) become "0000:1b:00.0", the kernel's form. nullopt if the text is
// not a PCI address.
std::optional<std::string> bus_id_from(std::string_view text);

}  // namespace plait
