#include "parallel/mesh.h"

#include <algorithm>

#include "config/job_rules.h"

namespace plait::parallel {

Group group_along(Axis axis) { return replica_axes.contains(axis) ? groups::replicas : Group{{axis}, axis == stage_axis}; }

std::string to_string(const Group& group) {
  if (group == groups::tied) return "tied";
  if (group == groups::world) return "world";
  return to_string(group.axes) + (group.model_ends ? " at the model's ends" : "");
}

int Layout::size(AxisSet axes) const {
  int ranks = 1;
  axes.for_each([&](Axis axis) { ranks *= size(axis); });
  return ranks;
}

int Layout::coordinate(int rank, AxisSet axes) const {
  int place = 0;
  for (const Axis axis : this->axes()) {
    if (axes.contains(axis)) place = place * size(axis) + coordinate(rank, axis);
  }
  return place;
}

AxisSizes Layout::sizes() const {
  return AxisSizes::of_rows([this](const AxisRow& row) { return size(row.axis); });
}

Coordinates Layout::coordinates(int rank) const {
  Coordinates c;
  for (const Axis axis : axes()) c[axis] = coordinate(rank, axis);
  return c;
}

int Layout::rank(const Coordinates& coordinates) const {
  int rank = 0;
  for (const Axis axis : axes()) rank += coordinates[axis] * strides_[place(axis)];
  return rank;
}

bool Layout::holds_an_end(int rank, ModelEnds ends) const {
  const int stage = coordinate(rank, stage_axis);
  return stage == ends.first || stage == ends.last;
}

int Layout::lowest_member(const Group& group, int rank, ModelEnds ends) const {
  if (group.model_ends && !holds_an_end(rank, ends)) return rank;
  group.axes.for_each([&](Axis axis) {
    rank = moved(rank, axis, group.model_ends && axis == stage_axis ? std::min(ends.first, ends.last) : 0);
  });
  return rank;
}

Layout Layout::resized(Axis axis, int size) const {
  std::vector<MeshAxis> list;
  for (const Axis a : axes()) list.push_back({a, a == axis ? size : this->size(a)});
  return Layout(list);
}

std::vector<int> Layout::members(const Group& group, int rank, ModelEnds ends) const {
  const auto at_an_end = [&](int of) { return holds_an_end(of, ends); };
  if (group.model_ends && !at_an_end(rank)) return {rank};
  std::vector<int> members = {rank};
  for (const Axis axis : axes()) {
    if (!group.axes.contains(axis) || size(axis) == 1) continue;
    std::vector<int> wider;
    wider.reserve(members.size() * static_cast<std::size_t>(size(axis)));
    for (const int member : members) {
      for (int place = 0; place < size(axis); ++place) wider.push_back(moved(member, axis, place));
    }
    members = std::move(wider);
  }
  if (group.model_ends) std::erase_if(members, [&](int member) { return !at_an_end(member); });
  return members;  // ascending, as axes are slowest first
}

std::string Layout::to_string() const {
  std::string text;
  for (const Axis axis : axes())
    text += (text.empty() ? "" : " × ") + plait::to_string(axis) + " " + std::to_string(size(axis));
  return text.empty() ? "one rank" : text;
}

Layout make_layout(const AxisSizes& sizes) {
  std::vector<MeshAxis> axes;
  for (const Name<Axis>& axis : names<Axis>) axes.push_back({axis.value, static_cast<int>(sizes[axis.value])});
  return Layout(axes);
}

std::vector<AxisSizes> meshes_of(std::int64_t ranks, Axis last) {
  std::vector<AxisSizes> meshes{single_rank};
  for (const Name<Axis>& axis : names<Axis>) {
    if (axis.value == last) continue;
    std::vector<AxisSizes> longer;
    for (AxisSizes mesh : meshes) {
      const std::int64_t left = ranks / product(mesh);
      for (mesh[axis.value] = 1; mesh[axis.value] <= left; ++mesh[axis.value]) {
        if (left % mesh[axis.value] == 0) longer.push_back(mesh);
      }
    }
    meshes = std::move(longer);
  }
  for (AxisSizes& mesh : meshes) mesh[last] = ranks / product(mesh);
  return meshes;
}

std::optional<ConfigProblem> axes_problem(const ParallelConfig& config, int ranks) {
  if (broken_rules({.size = config.known_sizes(), .ranks = ranks}).empty()) return std::nullopt;
  struct GivenAxis {
    Axis axis;
    std::int64_t size;
  };
  std::vector<GivenAxis> given;
  for (const AxisRow& row : axis_table) {
    if (!config.size[row.axis].is_auto()) given.push_back({row.axis, config.size[row.axis]});
  }
  std::int64_t product = 1;
  std::string sizes;
  for (const auto& [axis, size] : given) {
    product *= size;
    sizes += (sizes.empty() ? "" : " × ") + plait::to_string(axis) + " " + std::to_string(size);
  }
  const bool is_whole = given.size() == axis_count;
  // The axis to blame: the first that is larger than 1, or else the first of all.
  const GivenAxis* wrong = &given.front();
  for (const GivenAxis& one : given) {
    if (one.size > 1 && wrong->size == 1) wrong = &one;
  }
  const std::string key = axis_key(wrong->axis), count = std::to_string(ranks);
  std::string rule =
      sizes + (is_whole ? " must multiply to the number of ranks, " : " must divide the number of ranks, ") + count;
  std::string remedy =
      "set launch.ranks (or --gpus) to " + std::string(is_whole ? "" : "a multiple of ") + std::to_string(product);
  if (const std::int64_t others = product / wrong->size; ranks % others == 0)
    remedy += ", or " + key + " to " +
              (is_whole ? std::to_string(ranks / others) : "a divisor of " + std::to_string(ranks / others)) + " or auto";
  return ConfigProblem{key, std::to_string(wrong->size), rule + "; " + remedy, "", 0};
}

Layout resolve_layout(const ParallelConfig& config, int ranks) {
  if (const auto problem = axes_problem(config, ranks)) throw ConfigError({*problem});
  return make_layout(with_rest(config.known_sizes(), ranks));
}

}  // namespace plait::parallel
