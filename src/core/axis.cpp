#include "core/axis.h"

namespace plait {

std::string to_string(AxisSet axes) {
  std::string text;
  axes.for_each([&](Axis axis) { text += (text.empty() ? "" : ", ") + to_string(axis); });
  return text;
}

}  // namespace plait
