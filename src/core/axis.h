// The axes of a mesh of ranks. One table has a row for each axis: what its ranks divide among themselves, and how they
// communicate. All other code asks the table by property and iterates over it. The sizes of the axes are data: an AxisArray
// holds a value for each axis, parallel/mesh.h is a mesh, and groups of ranks are sets of axes.
//
// A new axis is a value and a row here, and code where its ranks compute something else (tests/build/axes_test.py).
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/names.h"

namespace plait {

// Axes in the order of ranks, slowest first. The axis that communicates most is the fastest: tensor-parallel ranks are
// neighbours and pipeline ranks are furthest apart (Narayanan et al. 2021, section 3.3).
enum class Axis { pipeline, data, tensor };

// The part of the work that the ranks along an axis divide. Ranks that divide layers or segments hold different parameters;
// along all other axes they hold the same ones.
enum class Splits {
  nothing,
  batch,     // sequences
  segments,  // heads, columns and vocabulary of every segment
  layers,    // the chain of segments
};

// How often the ranks along an axis communicate: within segments, between them in each micro-batch, or once in a step.
enum class CommunicatesIn { segments, micro_batches, steps };

// The key that selects links or library for collectives along an axis; none if its ranks only send messages.
enum class WayKey { none, exchanges, reductions };

struct AxisRow {
  Axis axis;
  std::string_view name;       // of the key `parallel.NAME`, and in layouts, plans and reports
  std::string_view adjective;  // of its ranks, in messages
  Splits splits;
  CommunicatesIn communicates;
  WayKey way;
  std::string_view traffic;           // the simultaneous traffic on its links, in messages
  std::optional<std::int64_t> usual;  // the default of its key; nothing: auto
  bool planned;                       // the planner chooses `auto`; else `auto` is what the other axes leave of the ranks
  std::string_view meaning;           // of its key, for the documentation
};

// In the order of the configuration's keys.
inline constexpr std::array axis_table{
    AxisRow{.axis = Axis::data,
            .name = "data",
            .adjective = "data-parallel",
            .splits = Splits::batch,
            .communicates = CommunicatesIn::steps,
            .way = WayKey::reductions,
            .traffic = "data groups",
            .usual = std::nullopt,
            .planned = false,
            .meaning = "Data-parallel size. `auto`: all ranks that `tensor` and `pipeline` leave."},
    AxisRow{.axis = Axis::tensor,
            .name = "tensor",
            .adjective = "tensor-parallel",
            .splits = Splits::segments,
            .communicates = CommunicatesIn::segments,
            .way = WayKey::exchanges,
            .traffic = "tensor groups",
            .usual = 1,
            .planned = true,
            .meaning = "Tensor-parallel size: ranks that share every matrix. Attention is split by heads, the MLP by columns "
                       "and rows, the embedding and the output projection by vocabulary. `auto`, here and in the keys that "
                       "follow: the planner's choice (docs/planner.md)."},
    AxisRow{.axis = Axis::pipeline,
            .name = "pipeline",
            .adjective = "pipeline-parallel",
            .splits = Splits::layers,
            .communicates = CommunicatesIn::micro_batches,
            .way = WayKey::none,
            .traffic = "messages",
            .usual = 1,
            .planned = true,
            .meaning = "Pipeline-parallel size: ranks that share the chain of segments."},
};
inline constexpr int axis_count = static_cast<int>(axis_table.size());

constexpr const AxisRow& row_of(Axis axis) {
  return *std::find_if(axis_table.begin(), axis_table.end(), [axis](const AxisRow& row) { return row.axis == axis; });
}

template <>
inline constexpr auto names<Axis> = [] {
  std::array<Name<Axis>, axis_table.size()> list{};
  for (const AxisRow& row : axis_table) list[static_cast<std::size_t>(row.axis)] = {row.axis, row.name};
  return list;
}();

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
  constexpr AxisSet without(AxisSet others) const {
    AxisSet set = *this;
    set.bits_ &= ~others.bits_;
    return set;
  }
  constexpr AxisSet without(Axis axis) const { return without(AxisSet{axis}); }
  constexpr AxisSet with(Axis axis) const {
    AxisSet set = *this;
    set.bits_ |= bit(axis);
    return set;
  }
  // Calls `what` for each axis, in the order of ranks.
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

std::string to_string(AxisSet axes);  // "data, tensor"; "" if empty

// The axes for whose rows `holds` returns true.
template <typename Holds>
constexpr AxisSet axes_where(Holds&& holds) {
  AxisSet set;
  for (const AxisRow& row : axis_table) {
    if (holds(row)) set = set.with(row.axis);
  }
  return set;
}
constexpr AxisSet axes_that_split(Splits what) {
  return axes_where([what](const AxisRow& row) { return row.splits == what; });
}
// The axis that divides `what`, which exactly one does: segments or layers.
consteval Axis axis_that_splits(Splits what) {
  const auto row = std::find_if(axis_table.begin(), axis_table.end(), [what](const AxisRow& r) { return r.splits == what; });
  return row->axis;
}
// Ranks along segment_axis share each segment; ranks along stage_axis, the ranks of a schedule, share the chain of segments.
inline constexpr Axis segment_axis = axis_that_splits(Splits::segments), stage_axis = axis_that_splits(Splits::layers);
// The axis whose `auto` is what the others leave of the ranks.
inline constexpr Axis rest_axis =
    std::find_if(axis_table.begin(), axis_table.end(), [](const AxisRow& row) { return !row.planned; })->axis;
// The axis along which gradients are summed.
inline constexpr Axis reduced_axis =
    std::find_if(axis_table.begin(), axis_table.end(), [](const AxisRow& row) { return row.way == WayKey::reductions; })->axis;
// The axes whose ranks process different sequences.
inline constexpr AxisSet batch_axes = axes_that_split(Splits::batch);
// Ranks along replica_axes hold the same parameters; ranks along model_axes hold different ones, or other parts.
inline constexpr AxisSet replica_axes =
    axes_where([](const AxisRow& row) { return row.splits != Splits::layers && row.splits != Splits::segments; });
inline constexpr AxisSet model_axes = AxisSet::all().without(replica_axes);

// The axes that communicate most often first; of equal ones, the one with the closest ranks first.
inline constexpr auto axes_by_traffic = [] {
  std::array<Axis, axis_table.size()> list{};
  for (std::size_t n = 0; n < list.size(); ++n) list[n] = axis_table[n].axis;
  std::sort(list.begin(), list.end(), [](Axis a, Axis b) {
    return row_of(a).communicates != row_of(b).communicates ? row_of(a).communicates < row_of(b).communicates : a > b;
  });
  return list;
}();

// A value for each axis; T{} for those without one.
template <typename T>
class AxisArray {
 public:
  constexpr AxisArray() = default;
  constexpr AxisArray(std::initializer_list<std::pair<Axis, T>> values) {
    for (const auto& [axis, value] : values) (*this)[axis] = value;
  }
  // Of values that become such ones.
  template <typename U>
    requires(!std::same_as<U, T> && std::convertible_to<const U&, T>)
  constexpr AxisArray(const AxisArray<U>& values) {
    for (const AxisRow& row : axis_table) (*this)[row.axis] = values[row.axis];
  }
  // make(row) for each axis.
  template <typename Make>
  static constexpr AxisArray of_rows(Make&& make) {
    AxisArray all;
    for (const AxisRow& row : axis_table) all[row.axis] = make(row);
    return all;
  }
  constexpr T& operator[](Axis axis) { return values_[static_cast<std::size_t>(axis)]; }
  constexpr const T& operator[](Axis axis) const { return values_[static_cast<std::size_t>(axis)]; }
  friend constexpr bool operator==(const AxisArray&, const AxisArray&) = default;

 private:
  std::array<T, axis_count> values_ = {};
};

std::string to_string(const AxisArray<int>& places);  // "pipeline 0, data 3, tensor 0"

// Ranks along each axis; 0 if that is unknown.
using AxisSizes = AxisArray<std::int64_t>;
// The sizes of one rank.
inline constexpr AxisSizes single_rank = AxisSizes::of_rows([](const AxisRow&) { return std::int64_t{1}; });
// The number of ranks in the given axes' product; 0 if the size of one is unknown.
constexpr std::int64_t product(const AxisSizes& sizes, AxisSet axes = AxisSet::all()) {
  std::int64_t ranks = 1;
  axes.for_each([&](Axis axis) { ranks *= sizes[axis]; });
  return ranks;
}

// Returns `sizes` with rest_axis set to the size that the others leave of `ranks`. Unchanged if it is given, if another is
// unknown, or if the others do not divide the ranks.
AxisSizes with_rest(AxisSizes sizes, std::int64_t ranks);

std::string way_key(WayKey way);  // "comm.reductions"
std::string axis_key(Axis axis);  // "parallel.data"
// The keys of these axes, in the order of keys.
std::vector<std::string> axis_keys(AxisSet axes = AxisSet::all());
// "parallel.data * parallel.tensor"
std::string axis_product(AxisSet axes = AxisSet::all());
// make(row) of these axes in the order of keys, joined by `between`.
template <typename Make>
std::string axes_text(AxisSet axes, std::string_view between, Make&& make) {
  std::string text;
  for (const AxisRow& row : axis_table) {
    if (!axes.contains(row.axis)) continue;
    if (!text.empty()) text += between;
    text += make(row);
  }
  return text;
}

}  // namespace plait
