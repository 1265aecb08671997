#include "plan/calibration.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"

namespace plait::plan {
namespace {

constexpr std::size_t most_entries = 10'000;

// Whatever is summed and multiplied from such figures is a number.
constexpr double most_seconds = 1e6, most_bytes = 1e18;

class CalibrationReader {
 public:
  CalibrationReader(const nlohmann::json& json, std::string path, const std::string& source)
      : json_(json), path_(std::move(path)), source_(source) {
    if (!json.is_object()) fail("must be an object");
  }

  [[noreturn]] void fail(const std::string& rule) const {
    throw ConfigError(source_ + ": " + (path_.empty() ? "the document" : path_) + " " + rule +
                      "; measure again with `plait bench calibrate`");
  }
  CalibrationReader at(const std::string& key) const {
    return {json_.at(key), path_.empty() ? key : path_ + "." + key, source_};
  }
  bool has(const std::string& key) const { return json_.contains(key); }

  std::string text(const std::string& key) const {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_string()) fail("must have a string '" + key + "'");
    return it->get<std::string>();
  }
  double positive(const std::string& key, double most = most_seconds) const {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_number()) fail("must have a number '" + key + "'");
    return checked(it->get<double>(), key, most);
  }
  bool flag(const std::string& key) const {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_boolean()) fail("must have true or false as '" + key + "'");
    return it->get<bool>();
  }
  std::int64_t count(const std::string& key) const {
    const double value = positive(key, 1e9);
    if (value < 1 || value != std::floor(value)) fail("must have a positive whole number '" + key + "'");
    return static_cast<std::int64_t>(value);
  }
  std::optional<double> maybe(const std::string& key, double most = most_seconds) const {
    return has(key) ? std::optional(positive(key, most)) : std::nullopt;
  }
  template <typename Read>
  void each(const std::string& key, const Read& read) const {
    const auto it = json_.find(key);
    if (it == json_.end()) return;
    if (!it->is_array() || it->size() > most_entries)
      fail("must have a list '" + key + "' of at most " + std::to_string(most_entries));
    for (std::size_t n = 0; n < it->size(); ++n)
      read(CalibrationReader((*it)[n], fmt::format("{}{}[{}]", path_.empty() ? "" : path_ + ".", key, n), source_));
  }
  Curve curve(const std::string& key) const {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_array() || it->empty() || it->size() > most_entries)
      fail("must have points '" + key + "': [[bytes, seconds], ...]");
    Curve curve;
    for (const nlohmann::json& point : *it) {
      if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number())
        fail("must have points '" + key + "': [[bytes, seconds], ...]");
      const std::pair<double, double> next{checked(point[0].get<double>(), key, most_bytes),
                                           checked(point[1].get<double>(), key, most_seconds)};
      if (!curve.points.empty() && next.first <= curve.points.back().first) fail("must have '" + key + "' ascending in bytes");
      curve.points.push_back(next);
    }
    return curve;
  }

 private:
  double checked(double value, const std::string& key, double most) const {
    if (!(value >= 0 && value <= most)) fail(fmt::format("has a '{}' that is not from 0 to {:g}", key, most));
    return value;
  }

  const nlohmann::json& json_;
  std::string path_;
  const std::string& source_;
};

nlohmann::ordered_json points_of(const Curve& curve) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [bytes, seconds] : curve.points) list.push_back({bytes, seconds});
  return list;
}

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

nlohmann::ordered_json to_json(const Calibration& c) {
  nlohmann::ordered_json json{
      {"format", "plait-calibration"}, {"version", calibration_version}, {"device", c.device}, {"model", c.model}};
  json["segments"] = nlohmann::ordered_json::array();
  for (const SegmentMeasurement& m : c.segments) {
    json["segments"].push_back({{"kind", to_string(m.kind)},
                                {"tensor", m.tensor},
                                {"micro_batch", m.micro_batch},
                                {"recompute", to_string(m.recompute)},
                                {"beside_head", m.beside_head},
                                {"forward_s", m.forward},
                                {"backward_input_s", m.backward_input},
                                {"backward_weight_s", m.backward_weight},
                                {"norm_forward_s", m.norm_forward},
                                {"norm_backward_s", m.norm_backward},
                                {"loss_s", m.loss}});
  }
  json["collectives"] = nlohmann::ordered_json::array();
  for (const CollectiveMeasurement& m : c.collectives)
    json["collectives"].push_back({{"kind", m.kind}, {"ranks", m.ranks}, {"seconds_by_bytes", points_of(m.curve)}});
  json["messages"] = nlohmann::ordered_json::array();
  for (const MessageMeasurement& m : c.messages)
    json["messages"].push_back({{"link", m.link}, {"transport", m.transport}, {"seconds_by_bytes", points_of(m.curve)}});
  const auto set = [&](const char* key, const std::optional<double>& value) {
    if (value) json[key] = *value;
  };
  set("update_seconds_per_byte", c.update_seconds_per_byte);
  set("collective_slowdown", c.collective_slowdown);
  set("message_slowdown", c.message_slowdown);
  set("context_bytes", c.context_bytes);
  set("collectives_bytes", c.collectives_bytes);
  json["communicators"] = nlohmann::ordered_json::array();
  for (const CommunicatorMeasurement& m : c.communicators) {
    json["communicators"].push_back({{"ranks", m.ranks}, {"bytes", m.bytes}});
  }
  return json;
}

Calibration calibration_from(const nlohmann::json& json, const std::string& source) {
  const CalibrationReader root(json, "", source);
  if (root.text("format") != "plait-calibration") root.fail("is not a calibration");
  if (const std::int64_t version = root.count("version"); version != calibration_version) {
    root.fail(fmt::format("is a calibration of version {}, and this plait reads version {}", version, calibration_version));
  }
  Calibration c{.device = root.text("device"),
                .model = root.text("model"),
                .segments = {},
                .collectives = {},
                .messages = {},
                .update_seconds_per_byte = root.maybe("update_seconds_per_byte"),
                .collective_slowdown = root.maybe("collective_slowdown"),
                .message_slowdown = root.maybe("message_slowdown"),
                .context_bytes = root.maybe("context_bytes", most_bytes),
                .collectives_bytes = root.maybe("collectives_bytes", most_bytes),
                .communicators = {}};
  root.each("segments", [&](const CalibrationReader& r) {
    const std::optional<model::SegmentKind> kind = named<model::SegmentKind>(r.text("kind"));
    if (!kind) r.fail("must be of kind " + names_listed<model::SegmentKind>());
    const std::optional<Recompute> recompute = named<Recompute>(r.text("recompute"));
    if (!recompute) r.fail("must have 'recompute' " + names_listed<Recompute>());
    c.segments.push_back({*kind, static_cast<int>(r.count("tensor")), r.count("micro_batch"), *recompute, r.flag("beside_head"),
                          r.positive("forward_s"), r.positive("backward_input_s"), r.positive("backward_weight_s"),
                          r.positive("norm_forward_s"), r.positive("norm_backward_s"), r.positive("loss_s")});
  });
  if (c.segments.empty()) root.fail("must have 'segments'");
  root.each("collectives", [&](const CalibrationReader& r) {
    c.collectives.push_back({r.text("kind"), static_cast<int>(r.count("ranks")), r.curve("seconds_by_bytes")});
  });
  root.each("communicators", [&](const CalibrationReader& r) {
    c.communicators.push_back({static_cast<int>(r.count("ranks")), r.positive("bytes", most_bytes)});
  });
  root.each("messages", [&](const CalibrationReader& r) {
    c.messages.push_back({r.text("link"), r.text("transport"), r.curve("seconds_by_bytes")});
  });
  return c;
}

}  // namespace plait::plan
