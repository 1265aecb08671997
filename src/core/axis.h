// The axes of a mesh of ranks by name, and sets of them. What a mesh has of them, in which order and how large, is data
// (parallel/mesh.h); groups of ranks and the sums that complete a parameter's gradient are sets of axes.
#pragma once

#include <initializer_list>

#include "core/names.h"

namespace plait {

enum class Axis { pipeline, data, tensor };
template <>
inline constexpr auto names<Axis> =
    std::to_array<Name<Axis>>({{Axis::pipeline, "pipeline"}, {Axis::data, "data"}, {Axis::tensor, "tensor"}});
inline constexpr int axis_count = static_cast<int>(names<Axis>.size());

class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= bit(axis);
  }
  static constexpr AxisSet all() {
    AxisSet set;
    set.bits_ = (1u << axis_count) - 1;
    return set;
  }
  constexpr bool contains(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet without(Axis axis) const {
    AxisSet set = *this;
    set.bits_ &= ~bit(axis);
    return set;
  }
  constexpr AxisSet with(Axis axis) const {
    AxisSet set = *this;
    set.bits_ |= bit(axis);
    return set;
  }
  template <typename Do>
  constexpr void for_each(Do&& what) const {
    for (const Name<Axis>& axis : names<Axis>) {
      if (contains(axis.value)) what(axis.value);
    }
  }
  friend constexpr auto operator<=>(const AxisSet&, const AxisSet&) = default;

 private:
  static constexpr unsigned bit(Axis axis) { return 1u << static_cast<unsigned>(axis); }
  unsigned bits_ = 0;
};

std::string to_string(AxisSet axes);  // "data, tensor"; "" of none

}  // namespace plait
