// The mesh of ranks: a list of axes (core/axis.h) with their sizes, slowest first, and the groups that communicate: sets of
// axes. Pure arithmetic. An axis that a mesh does not name has size 1.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "core/axis.h"
#include "core/error.h"

namespace plait::parallel {

// A rank's place along each axis.
using Coordinates = AxisArray<int>;
// Ranks that run a collective together: those that differ only in their coordinates along `axes`.
struct Group {
  AxisSet axes;
  // The group is only those whose stage holds an end of the model: they share the tied embedding table. A rank whose stage
  // holds neither end is in a group by itself.
  bool model_ends = false;
  friend constexpr auto operator<=>(const Group&, const Group&) = default;
};
namespace groups {
inline constexpr Group tensor{{segment_axis}};    // share each segment, and exchange sums
inline constexpr Group replicas{replica_axes};    // hold the same weights
inline constexpr Group tied{{stage_axis}, true};  // hold the tied table
inline constexpr Group world{AxisSet::all()};
// All groups, in the order in which ranks make their communicators.
inline constexpr std::array all{tensor, replicas, tied, world};
}  // namespace groups
// The group over which a parameter's gradients are summed along one axis (model::Parameter::partial). For an axis of replicas,
// it is the group along all of those axes at once.
Group group_along(Axis axis);
std::string to_string(const Group& group);  // "tensor", "data", "tied", "world"

// Pipeline ranks of the model's first and last stage.
struct ModelEnds {
  int first = 0, last = 0;
  friend bool operator==(const ModelEnds&, const ModelEnds&) = default;
};

struct MeshAxis {
  Axis axis;
  int size = 1;
};

class Layout {
 public:
  // One rank.
  constexpr Layout() : Layout(std::span<const MeshAxis>{}) {}
  constexpr Layout(std::initializer_list<MeshAxis> axes) : Layout(std::span(axes.begin(), axes.size())) {}
  // Axes come slowest first: ranks that differ along the last one are numbered one after the other. InternalError unless each
  // axis is there once at most and has a size of 1 or more.
  constexpr explicit Layout(std::span<const MeshAxis> axes) {
    sizes_.fill(1);
    strides_.fill(0);
    for (std::size_t n = axes.size(); n-- > 0;) {
      const std::size_t at = place(axes[n].axis);
      if (axes[n].size < 1 || strides_[at] != 0) require(false, "Layout: an axis twice, or one without ranks");
      sizes_[at] = axes[n].size, strides_[at] = ranks_;
      order_[n] = axes[n].axis;
      ranks_ *= axes[n].size;
    }
    named_ = axes.size();
  }

  constexpr int ranks() const { return ranks_; }
  constexpr int size(Axis axis) const { return sizes_[place(axis)]; }
  // The axes that were named, in their order.
  std::span<const Axis> axes() const { return {order_.data(), named_}; }
  constexpr int coordinate(int rank, Axis axis) const {
    return size(axis) == 1 ? 0 : rank / strides_[place(axis)] % size(axis);
  }
  // The number of ranks along several axes together, and a rank's place among those, numbered slowest axis first.
  int size(AxisSet axes) const;
  int coordinate(int rank, AxisSet axes) const;
  AxisSizes sizes() const;
  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& coordinates) const;
  // The rank at the same place in the mesh except for one coordinate.
  constexpr int moved(int rank, Axis axis, int coordinate) const {
    return rank + (coordinate - this->coordinate(rank, axis)) * strides_[place(axis)];
  }
  // The same axes, one of them with another size.
  Layout resized(Axis axis, int size) const;
  // The ranks of `rank`'s group in ascending order, `rank` among them.
  std::vector<int> members(const Group& group, int rank, ModelEnds ends) const;
  // The first of them.
  int lowest_member(const Group& group, int rank, ModelEnds ends) const;
  std::string to_string() const;  // "pipeline 1 × data 4 × tensor 1"
  friend constexpr bool operator==(const Layout&, const Layout&) = default;

 private:
  static constexpr std::size_t place(Axis axis) { return static_cast<std::size_t>(axis); }
  bool holds_an_end(int rank, ModelEnds ends) const;

  std::array<int, axis_count> sizes_ = {}, strides_ = {};  // by axis; 1 and 0 for an axis that is not named
  std::array<Axis, axis_count> order_ = {};
  std::size_t named_ = 0;
  int ranks_ = 1;
};

// The layout of all axes of the table, in the table's order of ranks. Sizes must be 1 or more.
Layout make_layout(const AxisSizes& sizes);

// All sizes of the axes that multiply to `ranks`: in the order of ranks, each axis by ascending size, except `last`, which
// takes what the others leave.
std::vector<AxisSizes> meshes_of(std::int64_t ranks, Axis last);

// The reason why no layout of `ranks` ranks has the axis sizes of the configuration (0 is any: auto), and how to mend it.
// Nothing if there is such a layout.
std::optional<ConfigProblem> axes_problem(const ParallelConfig& config, int ranks);

// The layout with the configuration's sizes; an axis that is auto takes what the other axes leave of `ranks`. ConfigError if
// the sizes do not multiply to `ranks`.
Layout resolve_layout(const ParallelConfig& config, int ranks);

}  // namespace plait::parallel
