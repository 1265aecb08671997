#include "train/report/tensorboard_writer.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <ctime>

#include "core/device.h"

namespace plait::train {
namespace {

// Protobuf wire format: a key is (field number << 3) | wire type.
enum class Wire : std::uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_little_endian(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void append_key(std::string& out, std::uint32_t field, Wire wire) {
  append_varint(out, (field << 3) | static_cast<std::uint32_t>(wire));
}

void append_bytes(std::string& out, std::uint32_t field, std::string_view value) {
  append_key(out, field, Wire::bytes);
  append_varint(out, value.size());
  out += value;
}

// Summary.Value { string tag = 1; float simple_value = 2; } as an element of Summary { repeated Value value = 1; }
void append_value(std::string& summary, std::string_view tag, float value) {
  std::string fields;
  append_bytes(fields, 1, tag);
  append_key(fields, 2, Wire::fixed32);
  append_little_endian(fields, std::bit_cast<std::uint32_t>(value), 4);
  append_bytes(summary, 1, fields);
}

constexpr std::uint32_t event_file_version = 3;
constexpr std::uint32_t event_summary = 5;
constexpr std::uint32_t event_session_log = 7;

// Event { double wall_time = 1; int64 step = 2; one of the above }
std::string encode_event(double wall_time, std::int64_t step, std::uint32_t field, std::string_view value) {
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_little_endian(event, std::bit_cast<std::uint64_t>(wall_time), 8);
  if (step != 0) {
    append_key(event, 2, Wire::varint);
    append_varint(event, static_cast<std::uint64_t>(step));
  }
  append_bytes(event, field, value);
  return event;
}

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

File create_event_file(const std::filesystem::path& directory) {
  create_private_directories(directory);
  // Named as by TensorFlow; TensorBoard reads a directory's files in the order of their names.
  const std::string base = fmt::format("events.out.tfevents.{:010}.{}.{}", std::time(nullptr), host_name(), ::getpid());
  int n = 0;
  while (std::filesystem::exists(directory / fmt::format("{}.{}", base, n))) ++n;
  return File::create_append(directory / fmt::format("{}.{}", base, n));
}

std::string tag_of(std::string_view key) {
  if (key == "loss" || key == "loss_tokens" || key == "lr" || key == "grad_norm") return "train/" + std::string(key);
  if (key == "validation_loss") return "validation/loss";
  return "performance/" + std::string(key);
}

constexpr std::array<std::uint32_t, 256> crc32c_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = (crc >> 8) ^ crc32c_table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

std::string tfrecord(std::string_view payload) {
  std::string record;
  append_little_endian(record, payload.size(), 8);
  append_little_endian(record, masked_crc32c(record), 4);
  record += payload;
  append_little_endian(record, masked_crc32c(payload), 4);
  return record;
}

std::string encode_scalar_event(double time, std::int64_t step, std::string_view tag, float value) {
  std::string summary;
  append_value(summary, tag, value);
  return encode_event(time, step, event_summary, summary);
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& directory, std::optional<std::int64_t> resumed_step)
    : file_(create_event_file(directory)) {
  file_.append(tfrecord(encode_event(wall_time(), 0, event_file_version, "brain.Event:2")));
  if (resumed_step) {
    // SessionLog { SessionStatus status = 1; } with START = 1: TensorBoard drops earlier files' events from this step on.
    std::string start;
    append_key(start, 1, Wire::varint);
    append_varint(start, 1);
    file_.append(tfrecord(encode_event(wall_time(), *resumed_step + 1, event_session_log, start)));
  }
}

void TensorBoardWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  file_.append(tfrecord(encode_scalar_event(wall_time(), step, tag, static_cast<float>(value))));
}

void TensorBoardWriter::scalars(const nlohmann::ordered_json& line) {
  std::string summary;
  for (const auto& [key, value] : line.items()) {
    if (key != "step" && value.is_number()) append_value(summary, tag_of(key), static_cast<float>(value.get<double>()));
  }
  file_.append(tfrecord(encode_event(wall_time(), line.at("step").get<std::int64_t>(), event_summary, summary)));
}

}  // namespace plait::train
