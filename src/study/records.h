// Reads and writes the lines of points.jsonl, results.jsonl and simulated.jsonl. docs/studies.md lists their keys.
#pragma once

#include <limits>

#include "core/limits.h"
#include "core/record.h"
#include "parallel/plan_json.h"
#include "study/point.h"
#include "study/study_data.h"

namespace plait::study {

inline constexpr std::size_t most_record_text = 1 << 20;
inline constexpr record::Many<record::AnyValue> any_coordinates{64, {}};
inline constexpr int any_int = std::numeric_limits<int>::max();

// {"pipeline": 1, "data": 4, "tensor": 1}: axes that make so many ranks.
struct LayoutRule {
  int ranks;
  parallel::Layout read(const JsonField& field) const {
    AxisSizes sizes;
    std::int64_t left = ranks;
    for (const Name<plait::Axis>& axis : names<plait::Axis>) {
      sizes[axis.value] = field[axis.text].whole(1, left);
      left /= sizes[axis.value];
    }
    parallel::Layout layout = parallel::make_layout(sizes);
    if (layout.ranks() != ranks)
      field.refuse(names<plait::Axis>.back().text, "must be such that the axes make " + std::to_string(ranks) + " ranks");
    return layout;
  }
  nlohmann::ordered_json write(const parallel::Layout& layout) const { return parallel::to_json(layout); }
};

void declare(auto& field, Of<PointFacts> auto& facts) {
  // Bounded so that their product, the tokens of a step, does not overflow.
  constexpr record::Whole count = record::whole(1), factor = record::whole(1, std::int64_t{1} << 31);
  field("ranks", facts.ranks, record::whole(1, limits::ranks.most));
  field("layout", facts.layout, LayoutRule{facts.ranks});
  field("schedule", facts.schedule);
  field("virtual_stages", facts.virtual_stages, count);
  field("zero", facts.zero, record::whole(0, 3));
  field("recompute", facts.recompute);
  field("micro_batch", facts.micro_batch, count);
  field("micro_batches", facts.micro_batches, count);
  field("global_batch", facts.global_batch, factor);
  field("sequence_length", facts.sequence_length, factor);
  field("parameters", facts.parameters, count);
  field("matrix_parameters", facts.matrix_parameters, count);
  field("model_flops_per_token", facts.model_flops_per_token, record::at_least(0));
  field("hardware_flops_per_token", facts.hardware_flops_per_token, record::at_least(0));
}

void declare(auto& field, Of<Prediction> auto& prediction) {
  field("step_ms", prediction.step_ms, record::at_least(0));
  field("bubble_fraction", prediction.bubble_fraction, record::at_least(0));
  field("ledger", prediction.ledger);
  field("peak_bytes", prediction.peak_bytes, train::by_rank);
  field("limit_bytes", prediction.limit_bytes, record::at_least(0));
  field("from", prediction.from);
}

void declare(auto& field, Of<Point> auto& point) {
  field("point", point.index, record::whole(0, any_int));
  field("id", point.id, record::text(32));
  field("coordinates", point.coordinates, any_coordinates);
  field.or_null("pruned", point.pruning);
  if (point.pruning) field("because", point.pruned_because, record::text(most_record_text));
  if (point.pruning == Pruning::duplicate) {
    field.check(point.index > 0, "pruned", "must be something else: the first point is like none before it");
    field.required("same_as", point.same_as, record::whole(0, point.index - 1));
  }
  field.unless(0, "asked_ranks", point.asked_ranks, record::whole(1, any_int));
  field("facts", point.facts);
  field("predicted", point.prediction);
  field("config", point.config, record::text(most_record_text));
  field.check(point.pruning || (!point.id.empty() && !point.config.empty() && point.facts), "pruned",
              "must be given where there is no id, configuration or facts");
}

void declare(auto& field, Of<Round> auto& round) {
  field.constant("record", "round", "");
  field("point", round.point, record::whole(0, any_int));
  field("round", round.round, record::whole(1, 1'000'000));
  field("outcome", round.outcome);
  field("started", round.started);
  field("seconds", round.seconds, record::at_least(0));
  field("host", round.host);
  field("log", round.log);
  if (round.outcome == Outcome::ok) {
    field.required("measured", round.measured);
  } else {
    field("message", round.message, record::text(most_record_text));
  }
}

void declare(auto& field, Of<Stop> auto& stop) {
  field.constant("record", "stop", "");
  field("reason", stop.reason);
  field("time", stop.time);
}

void declare(auto& field, Of<SimulatedPoint> auto& point) {
  field("coordinates", point.coordinates, any_coordinates);
  field("gpus", point.gpus, record::whole(1, limits::ranks.most));
  field("device", point.device);
  field("network", point.network);
  field("refused", point.refused, record::text(most_record_text));
  field("facts", point.facts);
  field("predicted", point.prediction);
  field("least_ratio", point.least_ratio);
  field("most_ratio", point.most_ratio);
}

}  // namespace plait::study
