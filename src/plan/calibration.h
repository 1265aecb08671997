// Calibrations: measurements of one model on one machine (`plait bench calibrate`), and their file format.
//
// A calibration corrects the nominal profile rather than replacing it: a measurement at one size also informs the costs at
// other sizes.
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

// Seconds of one micro-batch in one segment on one rank, without the transfers between ranks. A pass that the segment does not
// have takes 0. Where ranks share the segment, it was timed with its exchanges running beside compute. Copies within the
// device's memory stood for those parts of peers that the exchanges do not put in place by themselves.
struct SegmentMeasurement {
  model::SegmentKind kind = model::SegmentKind::attention;
  int tensor = 1;                // ranks that share the segment
  std::int64_t micro_batch = 1;  // sequences
  Recompute recompute = Recompute::none;
  // True on a rank that holds the head. A GPU at its power limit runs everything at the clock that the mix of work allows, and
  // a head's large products draw the most power, so blocks are faster on ranks without a head.
  bool beside_head = true;
  double forward = 0, backward_input = 0, backward_weight = 0;
  double norm_forward = 0, norm_backward = 0;  // of the norm in front; where ranks share it, with the residual before it
  double loss = 0;                             // of the head
};

// Seconds by bytes, ascending in bytes. Sizes between two points lie on the line through them. Sizes below the first point take
// as long as the first. Beyond the last point, the rate between the last two continues.
struct Curve {
  std::vector<std::pair<double, double>> points;
  double seconds(double bytes) const;  // InternalError without points
  // The part of seconds(bytes) that grows with the size, per byte: the slope between the last two points, but never more than
  // seconds(bytes) / bytes. The rest of seconds() is the start.
  double seconds_per_byte(double bytes) const;
};

struct CollectiveMeasurement {
  std::string kind;  // "all_reduce", "reduce_scatter", "all_gather"
  int ranks = 2;
  Curve curve;  // by bytes of the whole tensor
};

struct MessageMeasurement {
  std::string link;       // "NV18", as topology::PairSummary names it; "": any link
  std::string transport;  // "direct"
  Curve curve;
};

// Device memory that a communicator needs for itself, without the data sent through it.
struct CommunicatorMeasurement {
  int ranks = 2;
  double bytes = 0;
};

// Version of the file. Version 1 measured whole blocks, 2 lacked beside_head, 3 had medians of blocks, 4 gathered no rows of
// peers.
inline constexpr std::int64_t calibration_version = 5;

struct Calibration {
  std::string device;  // as the device calls itself
  std::string model;   // model_key()
  std::vector<SegmentMeasurement> segments;
  std::vector<CollectiveMeasurement> collectives;
  std::vector<MessageMeasurement> messages;
  std::optional<double> update_seconds_per_byte;  // per byte of update_bytes(), clipping's norm included
  std::optional<double> collective_slowdown, message_slowdown;
  std::optional<double> context_bytes;      // device memory of libraries, without the collectives library
  std::optional<double> collectives_bytes;  // device memory of the collectives library, once, without its communicators
  std::vector<CommunicatorMeasurement> communicators;
};

// The settings that segment times depend on, besides tensor, micro-batch and recompute: "hidden 768 heads 12/12x64 ffn 3072
// gelu layer_norm learned vocab 50304 sequence 1024 bf16".
std::string model_key(const model::SegmentSizes& sizes);

// The conversion is lossless. Reading throws ConfigError naming `source` and the key if the document is not a calibration or
// holds an impossible figure (negative, not finite, more than 10,000 points).
nlohmann::ordered_json to_json(const Calibration& calibration);
Calibration calibration_from(const nlohmann::json& json, const std::string& source);

}  // namespace plait::plan
