#include "verify/divergence.h"

#include <spdlog/fmt/fmt.h>

#include <tuple>

#include "comm/word.h"
#include "verify/difference.h"

namespace plait::verify {
namespace {

// `tensor` is the tensor that differs.
std::string key_of(Axis axis) { return axis == segment_axis ? "tensor_parallel" : to_string(axis); }

}  // namespace

std::string Divergence::text() const {
  const std::string size = error >= not_finite ? "not finite" : fmt::format("relative error {:.2g}", error);
  return fmt::format("step {}, {}, rank {} ({}), {} (bound {:.1e}){}", step, what, rank, to_string(at), size, bound,
                     remark.empty() ? "" : "; " + remark);
}

bool Divergence::before(const Divergence& other) const {
  return std::tie(step, part, order, index, rank) < std::tie(other.step, other.part, other.order, other.index, other.rank);
}

void to_json(nlohmann::ordered_json& json, const Divergence& d) {
  json = {{"text", d.text()},
          {"step", d.step},
          {"part", static_cast<int>(d.part)},
          {"order", d.order},
          {"index", d.index},
          {"rank", d.rank},
          {"what", d.what},
          {"tensor", d.tensor},
          {"segment", d.segment},
          {"micro_batch", d.micro_batch},
          {"error", d.error},
          {"bound", d.bound},
          {"remark", d.remark}};
  AxisSet::all().for_each([&](Axis axis) { json[key_of(axis)] = d.at[axis]; });
}

void from_json(const nlohmann::ordered_json& json, Divergence& d) {
  json.at("step").get_to(d.step);
  const auto part = json.at("part").get<std::int64_t>();
  if (part < 0 || part > static_cast<std::int64_t>(StepPart::weights))
    throw comm::InvalidWord("'part' is not a part of a step");
  d.part = static_cast<StepPart>(part);
  json.at("order").get_to(d.order);
  json.at("index").get_to(d.index);
  json.at("rank").get_to(d.rank);
  AxisSet::all().for_each([&](Axis axis) { json.at(key_of(axis)).get_to(d.at[axis]); });
  json.at("what").get_to(d.what);
  json.at("tensor").get_to(d.tensor);
  json.at("segment").get_to(d.segment);
  json.at("micro_batch").get_to(d.micro_batch);
  json.at("error").get_to(d.error);
  json.at("bound").get_to(d.bound);
  json.at("remark").get_to(d.remark);
}

}  // namespace plait::verify
