// Writes TensorBoard event files with scalars. TFRecord framing and the few protobuf fields are written by hand, so that
// reading a run in TensorBoard costs no dependency here. Format: tensorflow/core/lib/io/record_writer.h, core/util/event.proto,
// core/framework/summary.proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/file.h"

namespace plait::train {

class TensorBoardWriter {
 public:
  // Creates DIRECTORY/events.out.tfevents.SECONDS.HOST.PID.N. A resumed run starts a new file next to the old ones; TensorBoard
  // then leaves out their steps after `resumed_step`.
  explicit TensorBoardWriter(const std::filesystem::path& directory, std::optional<std::int64_t> resumed_step = std::nullopt);

  void scalar(std::string_view tag, std::int64_t step, double value);

  // Writes every number of a metrics line but "step", under the tags that group them in TensorBoard: train/loss,
  // validation/loss, performance/..., in one event.
  void scalars(const nlohmann::ordered_json& line);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  File file_;
};

// The parts, exposed for tests.
std::uint32_t crc32c(std::string_view bytes);         // Castagnoli
std::uint32_t masked_crc32c(std::string_view bytes);  // as TFRecord stores it
std::string tfrecord(std::string_view payload);       // length, its CRC, payload, its CRC
// Event{wall_time, step, summary{value{tag, simple_value}...}}, encoded.
std::string encode_scalar_event(double wall_time, std::int64_t step, std::string_view tag, float value);

}  // namespace plait::train
