// The mesh of ranks: named axes with their sizes in a list, slowest first, and the groups that communicate: sets of axes. Pure
// arithmetic. Which axes there are and in which order is said once, in make_layout(); all else asks for an axis by name, and
// one that a mesh does not have is of size 1.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/axis.h"
#include "core/config.h"
#include "core/error.h"

namespace plait::parallel {

// A rank's place along each axis; 0 where nothing is said.
class Coordinates {
 public:
  constexpr Coordinates() = default;
  constexpr Coordinates(std::initializer_list<std::pair<Axis, int>> places) {
    for (const auto& [axis, place] : places) (*this)[axis] = place;
  }
  constexpr int& operator[](Axis axis) { return at_[static_cast<std::size_t>(axis)]; }
  constexpr int operator[](Axis axis) const { return at_[static_cast<std::size_t>(axis)]; }
  friend constexpr bool operator==(const Coordinates&, const Coordinates&) = default;

 private:
  std::array<int, axis_count> at_ = {};
};

std::string to_string(const Coordinates& coordinates);  // "pipeline 0, data 3, tensor 0"

// Ranks that run a collective together: those that differ in coordinates of `axes` only.
struct Group {
  AxisSet axes;
  // Of them only those whose stage holds an end of the model: they share the tied embedding table. A rank whose stage holds
  // neither is in a group by itself.
  bool model_ends = false;
  friend constexpr auto operator<=>(const Group&, const Group&) = default;
};
namespace groups {
inline constexpr Group tensor{{Axis::tensor}};        // share each segment, and exchange sums
inline constexpr Group replicas{{Axis::data}};        // hold the same weights and see other sequences
inline constexpr Group tied{{Axis::pipeline}, true};  // hold the tied table
inline constexpr Group world{AxisSet::all()};
// In the order in which ranks make their communicators.
inline constexpr std::array all{tensor, replicas, tied, world};
}  // namespace groups
// The group over which the gradients of a parameter are summed along one axis (model::Parameter::partial).
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
  // Slowest axis first: ranks that differ along the last one are numbered one after the other. InternalError unless each axis
  // is there once at most, with a size of 1 or more.
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
  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& coordinates) const;
  // The same place in the mesh but for one coordinate.
  constexpr int moved(int rank, Axis axis, int coordinate) const {
    return rank + (coordinate - this->coordinate(rank, axis)) * strides_[place(axis)];
  }
  // The same axes, one of them of another size.
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

  std::array<int, axis_count> sizes_ = {}, strides_ = {};  // by axis; of one that is not named 1 and 0
  std::array<Axis, axis_count> order_ = {};
  std::size_t named_ = 0;
  int ranks_ = 1;
};

// The axes of the configuration in the order of a mesh: what communicates most is closest, so tensor-parallel ranks are
// neighbours and pipeline ranks are furthest apart (Narayanan et al. 2021, section 3.3).
constexpr Layout make_layout(std::int64_t pipeline, std::int64_t data, std::int64_t tensor) {
  return {{Axis::pipeline, static_cast<int>(pipeline)},
          {Axis::data, static_cast<int>(data)},
          {Axis::tensor, static_cast<int>(tensor)}};
}

// Why no layout of `ranks` ranks has the axes that the configuration gives, 0 being any (auto), with what would have; nothing
// if there is one.
std::optional<ConfigProblem> axes_problem(const ParallelConfig& config, int ranks);

// Sizes from the configuration; data = 0 (auto) takes what the other axes leave of `ranks`. ConfigError if they do not multiply
// to `ranks`.
Layout resolve_layout(const ParallelConfig& config, int ranks);

}  // namespace plait::parallel
