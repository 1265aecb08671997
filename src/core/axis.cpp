#include "core/axis.h"

namespace plait {

std::string to_string(AxisSet axes) {
  std::string text;
  axes.for_each([&](Axis axis) { text += (text.empty() ? "" : ", ") + to_string(axis); });
  return text;
}

std::string way_key(WayKey way) {
  switch (way) {
    case WayKey::none: break;
    case WayKey::exchanges: return "comm.exchanges";
    case WayKey::reductions: return "comm.reductions";
  }
  return "";
}

std::string axis_key(Axis axis) { return "parallel." + to_string(axis); }

std::vector<std::string> axis_keys(AxisSet axes) {
  std::vector<std::string> keys;
  for (const AxisRow& row : axis_table) {
    if (axes.contains(row.axis)) keys.push_back(axis_key(row.axis));
  }
  return keys;
}

std::string axis_product(AxisSet axes) {
  return axes_text(axes, " * ", [](const AxisRow& row) { return axis_key(row.axis); });
}

std::string to_string(const AxisArray<int>& places) {
  std::string text;
  AxisSet::all().for_each(
      [&](Axis axis) { text += (text.empty() ? "" : ", ") + to_string(axis) + " " + std::to_string(places[axis]); });
  return text;
}

AxisSizes with_rest(AxisSizes sizes, std::int64_t ranks) {
  const std::int64_t others = product(sizes, AxisSet::all().without(rest_axis));
  if (sizes[rest_axis] == 0 && others > 0 && ranks % others == 0) sizes[rest_axis] = ranks / others;
  return sizes;
}

}  // namespace plait
