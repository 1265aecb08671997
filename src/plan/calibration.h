// What was measured on a machine for one model (`plait bench calibrate`), and how it is kept.
//
// A calibration corrects the nominal profile rather than replacing it: what was measured at one size says something about
// the others too.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/activations.h"
#include "topology/device_profile.h"

namespace plait::plan {

// Seconds of one micro-batch in one segment on one rank, without what moves between ranks. What a segment does not do takes
// none. Where ranks share the segment, it was timed with its exchanges beside compute, and with copies in the device's memory
// for the parts of peers that those do not put in their place by themselves.
struct SegmentMeasurement {
  model::SegmentKind kind = model::SegmentKind::attention;
  int tensor = 1;                // ranks that share the segment
  std::int64_t micro_batch = 1;  // sequences
  Recompute recompute = Recompute::none;
  // On a rank that holds the head. A GPU at its power limit runs everything at the clock that the mix allows, and a head's
  // large products take most power: blocks are faster where there is none.
  bool beside_head = true;
  double forward = 0, backward_input = 0, backward_weight = 0;
  double norm_forward = 0, norm_backward = 0;  // in front of it; where ranks share it, with the residual of the one before
  double loss = 0;                             // of the head
};

// Seconds by bytes, ascending in bytes. Between two points on the line through them; below the first as the first; beyond the
// last at the rate between the last two.
struct Curve {
  std::vector<std::pair<double, double>> points;
  double seconds(double bytes) const;  // InternalError without points
  // Of that, what each byte takes: as between the last two points, and in all no more than seconds(). The rest is a start.
  double seconds_per_byte(double bytes) const;
};

struct CollectiveMeasurement {
  std::string kind;  // "all_reduce", "reduce_scatter", "all_gather"
  int ranks = 2;
  Curve curve;  // by bytes of the whole tensor
};

struct MessageMeasurement {
  std::string link;       // "NV18", as topology::PairSummary names it; "" any
  std::string transport;  // "direct"
  Curve curve;
};

// Device memory that a communicator needs, besides what is sent through it.
struct CommunicatorMeasurement {
  int ranks = 2;
  double bytes = 0;
};

// Of the file. 1 had whole blocks, 2 did not say what was beside the head, 3 had medians of blocks, 4 gathered no rows of
// peers.
inline constexpr std::int64_t calibration_version = 5;

struct Calibration {
  std::string device;  // as the device calls itself
  std::string model;   // model_key()
  std::vector<SegmentMeasurement> segments;
  std::vector<CollectiveMeasurement> collectives;
  std::vector<MessageMeasurement> messages;
  std::optional<double> update_seconds_per_byte;  // of update_bytes(), clipping's norm included
  std::optional<double> collective_slowdown, message_slowdown;
  std::optional<double> context_bytes;      // device memory of libraries, without the one for collectives
  std::optional<double> collectives_bytes;  // device memory of that one, once, besides its communicators
  std::vector<CommunicatorMeasurement> communicators;
};

// What segment times depend on, besides tensor, micro-batch and recompute: "768x12x12 ffn 3072 gelu vocab 50304 sequence 1024
// bf16".
std::string model_key(const model::SegmentSizes& sizes);

// Lossless. Reading throws ConfigError naming `source` and the key for anything that is not a calibration or holds a figure
// that cannot be (negative, not finite, more points than 10,000).
nlohmann::ordered_json to_json(const Calibration& calibration);
Calibration calibration_from(const nlohmann::json& json, const std::string& source);

}  // namespace plait::plan
