// Studies made by hand, for tests.
#pragma once

#include <string>
#include <vector>

#include "parallel/make_layout.h"
#include "study/study_folder.h"

namespace plait::study::test {

inline Config study_config(const std::string& dir, const std::string& measure = "rounds: 2..3, until: 5%") {
  return parse_config("run: {name: s, dir: " + dir +
                      ", seed: 7}\nmodel: {layers: 2, hidden: 32, heads: 4, vocab: 64}\ndata: {tokenizer: random, "
                      "sequence_length: 16}\ntrain: {steps: 3, global_batch: 8, micro_batch: 2}\nlaunch: {device: cpu}\n"
                      "study: {axes: {launch.ranks: [1, 2]}, measure: {" +
                      measure + "}}\n");
}

inline Point point(const Config& study, int index, int ranks, double predicted_ms) {
  Point point;
  point.index = index;
  point.id = std::string(31, 'a') + static_cast<char>('0' + index);
  point.coordinates = {{"launch.ranks", std::to_string(ranks)}, {"layout", "number " + std::to_string(index)}};
  point.config = to_yaml(study);
  point.facts = PointFacts{.ranks = ranks,
                           .layout = parallel::make_layout(1, ranks, 1),
                           .schedule = "1f1b",
                           .recompute = "none",
                           .micro_batch = 2,
                           .micro_batches = 4 / ranks,
                           .global_batch = 8,
                           .sequence_length = 16,
                           .parameters = 1000,
                           .matrix_parameters = 800,
                           .model_flops_per_token = 6000,
                           .hardware_flops_per_token = 8000};
  point.prediction = Prediction{.step_ms = predicted_ms,
                                .bubble_fraction = 0.25,
                                .ledger = {},
                                .peak_bytes = {1e6},
                                .limit_bytes = 1e9,
                                .from = "nominal figures of CPU core"};
  return point;
}

inline Round round(int point, int number, std::vector<double> step_ms) {
  Round round{.point = point, .round = number, .started = "2026-11-23T03:05:17Z", .seconds = 2, .host = "h", .log = "l"};
  round.measured = Measurement{.step_ms = std::move(step_ms), .ledgers = {{}}, .memory = {{10, 20, 0}}, .tokens_per_step = 128};
  return round;
}

inline Round failed(int point, int number, Outcome outcome, const std::string& message) {
  return {.point = point,
          .round = number,
          .outcome = outcome,
          .started = "s",
          .seconds = 1,
          .host = "h",
          .message = message,
          .log = "l"};
}

}  // namespace plait::study::test
