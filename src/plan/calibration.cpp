#include "plan/calibration.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/error.h"
#include "core/record.h"

namespace plait::plan {
namespace {

constexpr std::size_t most_entries = 10'000;

// Limits that keep every sum and product of such figures finite.
constexpr double most_seconds = 1e6, most_bytes = 1e18;

constexpr record::Number seconds_rule = record::number(0, most_seconds), bytes_rule = record::number(0, most_bytes);
constexpr record::Whole count_rule = record::whole(1, 1'000'000'000);

// [[bytes, seconds], ...]
struct CurveRule {
  Curve read(const auto& field) const {
    Curve curve;
    for (const auto& item : field.items(most_entries)) {
      const auto point = item.items();
      if (point.size() != 2) item.refuse("must be a point [bytes, seconds]");
      const std::pair<double, double> next{bytes_rule.read(point[0]), seconds_rule.read(point[1])};
      if (!curve.points.empty() && next.first <= curve.points.back().first) item.refuse("must be ascending in bytes");
      curve.points.push_back(next);
    }
    if (curve.points.empty()) field.refuse("must have points [[bytes, seconds], ...]");
    return curve;
  }
  nlohmann::ordered_json write(const Curve& curve) const { return curve.points; }
};

}  // namespace

double Curve::seconds(double bytes) const {
  require(!points.empty(), "Curve::seconds: nothing was measured");
  if (bytes <= points.front().first || points.size() == 1) return points.front().second;
  std::size_t above = 1;
  while (above + 1 < points.size() && points[above].first < bytes) ++above;
  const auto [x0, y0] = points[above - 1];
  const auto [x1, y1] = points[above];
  return std::max(y0, y0 + (y1 - y0) * (bytes - x0) / (x1 - x0));
}

double Curve::seconds_per_byte(double bytes) const {
  const double whole = bytes > 0 ? seconds(bytes) / bytes : 0;
  if (points.size() < 2) return whole;
  const auto [x0, y0] = points[points.size() - 2];
  const auto [x1, y1] = points.back();
  return y1 > y0 ? std::min(whole, (y1 - y0) / (x1 - x0)) : whole;
}

std::string model_key(const model::SegmentSizes& sizes) {
  const model::ModelShape& s = sizes.shape;
  std::string key = fmt::format("hidden {} heads {}/{}x{} ffn {} {} {}{} {} vocab {} sequence {} {}", s.hidden, s.heads,
                                s.kv_heads, s.head_dim, s.ffn, to_string(s.mlp), to_string(s.norm), s.qk_norm ? " qk_norm" : "",
                                to_string(s.position), s.vocab, sizes.micro_batch.sequence, to_string(sizes.compute));
  if (s.window > 0 && s.same_window()) key += fmt::format(" window {}", s.window);
  if (sizes.micro_batch.documents == Documents::separate) key += " documents";
  if (sizes.fp8) key += " fp8";
  return key;
}

void declare(auto& field, Of<SegmentMeasurement> auto& m) {
  field("kind", m.kind);
  field("tensor", m.tensor, count_rule);
  field("micro_batch", m.micro_batch, count_rule);
  field("recompute", m.recompute);
  field("beside_head", m.beside_head);
  field("forward_s", m.forward, seconds_rule);
  field("backward_input_s", m.backward_input, seconds_rule);
  field("backward_weight_s", m.backward_weight, seconds_rule);
  field("norm_forward_s", m.norm_forward, seconds_rule);
  field("norm_backward_s", m.norm_backward, seconds_rule);
  field("loss_s", m.loss, seconds_rule);
}

void declare(auto& field, Of<CollectiveMeasurement> auto& m) {
  field("kind", m.kind);
  field("ranks", m.ranks, count_rule);
  field("seconds_by_bytes", m.curve, CurveRule());
}

void declare(auto& field, Of<MessageMeasurement> auto& m) {
  field("link", m.link);
  field("transport", m.transport);
  field("seconds_by_bytes", m.curve, CurveRule());
}

void declare(auto& field, Of<CommunicatorMeasurement> auto& m) {
  field("ranks", m.ranks, count_rule);
  field("bytes", m.bytes, bytes_rule);
}

void declare(auto& field, Of<Calibration> auto& c) {
  field.constant("format", "plait-calibration", ": this is not a calibration");
  field.constant("version", calibration_version, ", the version of calibrations that this plait reads");
  field("device", c.device);
  field("model", c.model);
  field("segments", c.segments, record::at_most(most_entries));
  field.check(!c.segments.empty(), "segments", "must not be empty");
  field.with_default({}, "collectives", c.collectives, record::at_most(most_entries));
  field.with_default({}, "messages", c.messages, record::at_most(most_entries));
  field("update_seconds_per_byte", c.update_seconds_per_byte, seconds_rule);
  field("collective_slowdown", c.collective_slowdown, seconds_rule);
  field("message_slowdown", c.message_slowdown, seconds_rule);
  field("context_bytes", c.context_bytes, bytes_rule);
  field("collectives_bytes", c.collectives_bytes, bytes_rule);
  field.with_default({}, "communicators", c.communicators, record::at_most(most_entries));
}

nlohmann::ordered_json to_json(const Calibration& calibration) { return record_json(calibration); }

Calibration calibration_from(const nlohmann::json& json, const std::string& source) {
  const JsonSource file{.name = source, .remedy = "; measure again with `plait bench calibrate`", .null_is_missing = false};
  return record_from<Calibration>(BasicJsonField(json, file));
}

}  // namespace plait::plan
