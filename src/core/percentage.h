// Parses percentages.
#pragma once

#include <optional>
#include <string_view>

namespace plait {

// "5%" or "0.5%" as a fraction, 0 to 1; nullopt for anything else.
std::optional<double> percentage(std::string_view text);

}  // namespace plait
