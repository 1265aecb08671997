#include "train/report/tensorboard_writer.h"

#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <map>

#include "checkpoint/checkpoint_files.h"

namespace plait::train {
namespace {

using namespace checkpoint::test;

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// A decoder of its own: a record's payload, and a protobuf message as field -> values.
class Decoder {
 public:
  explicit Decoder(std::string bytes) : bytes_(std::move(bytes)) {}
  bool done() const { return at_ == bytes_.size(); }

  std::string record() {
    const std::string length = take(8);
    EXPECT_EQ(fixed(take(4)), masked_crc32c(length));
    const std::string payload = take(fixed(length));
    EXPECT_EQ(fixed(take(4)), masked_crc32c(payload));
    return payload;
  }

  std::multimap<int, std::string> message() {
    std::multimap<int, std::string> fields;
    while (!done()) {
      const std::uint64_t key = varint();
      const int field = static_cast<int>(key >> 3);
      switch (key & 7) {
        case 0: fields.emplace(field, std::to_string(varint())); break;
        case 1: fields.emplace(field, take(8)); break;
        case 2: fields.emplace(field, take(varint())); break;
        case 5: fields.emplace(field, take(4)); break;
        default: ADD_FAILURE() << "wire type " << (key & 7); return fields;
      }
    }
    return fields;
  }

 private:
  std::string take(std::uint64_t count) {
    EXPECT_LE(count, bytes_.size() - at_);
    const std::string piece = bytes_.substr(at_, count);
    at_ += piece.size();
    return piece;
  }
  static std::uint64_t fixed(const std::string& bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).at(0));
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string bytes_;
  std::size_t at_ = 0;
};

std::map<std::string, float> values_of(const std::string& summary) {
  std::map<std::string, float> values;
  for (const auto& [field, bytes] : Decoder(summary).message()) {
    EXPECT_EQ(field, 1);
    const auto value = Decoder(bytes).message();
    float number = 0;
    std::memcpy(&number, value.find(2)->second.data(), sizeof number);
    values[value.find(1)->second] = number;
  }
  return values;
}

class TensorBoard : public InTemporaryDirectory {
 protected:
  std::vector<std::multimap<int, std::string>> events(const fs::path& path) {
    std::vector<std::multimap<int, std::string>> list;
    for (Decoder records(read_file(path)); !records.done();) list.push_back(Decoder(records.record()).message());
    return list;
  }
};

TEST(Crc32c, KnownVectors) {
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST(TensorBoardRecord, EqualsWhatTensorBoardWrites) {
  // tensorboard 2.21: RecordWriter.write(Event(wall_time=1700000000.25, step=300, summary=Summary(value=[Summary.Value(
  // tag="train/loss", simple_value=2.375)])).SerializeToString()). Its serializer nests no metadata, so ours must match.
  EXPECT_EQ(tfrecord(encode_scalar_event(1700000000.25, 300, "train/loss", 2.375f)),
            from_hex("2100000000000000017becf60900001040fc54d94110ac022a130a110a0a747261696e2f6c6f73731500001840d864c11b"));
}

TEST_F(TensorBoard, FilesStartWithTheirVersion) {
  const TensorBoardWriter writer(directory_ / "tensorboard");
  EXPECT_THAT(writer.path().filename().string(), ::testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+\\.[0-9]+\\.0"));
  const auto list = events(writer.path());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].find(3)->second, "brain.Event:2");
}

TEST_F(TensorBoard, ScalarsReadBack) {
  TensorBoardWriter writer(directory_);
  writer.scalar("validation/loss", 1, 2.5);
  writer.scalars({{"step", 300},
                  {"loss", 3.25},
                  {"lr", 0.5},
                  {"step_ms", 58.5},
                  {"peak_bytes", 1 << 20},
                  {"validation_loss", 3.5},
                  {"comment", "not a number"}});
  const auto list = events(writer.path());
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[1].find(2)->second, "1");
  EXPECT_EQ(values_of(list[1].find(5)->second), (std::map<std::string, float>{{"validation/loss", 2.5f}}));
  EXPECT_EQ(list[2].find(2)->second, "300");
  EXPECT_EQ(values_of(list[2].find(5)->second), (std::map<std::string, float>{{"train/loss", 3.25f},
                                                                              {"train/lr", 0.5f},
                                                                              {"performance/step_ms", 58.5f},
                                                                              {"performance/peak_bytes", 1048576.0f},
                                                                              {"validation/loss", 3.5f}}));
  double wall_time = 0;
  std::memcpy(&wall_time, list[2].find(1)->second.data(), sizeof wall_time);
  EXPECT_GT(wall_time, 1.6e9);
}

TEST_F(TensorBoard, ResumingStartsANewFileThatPurgesLaterSteps) {
  const TensorBoardWriter first(directory_);
  const std::string before = read_file(first.path());
  const TensorBoardWriter second(directory_, 100);
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(read_file(first.path()), before);
  const auto list = events(second.path());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].find(2)->second, "101");
  EXPECT_EQ(Decoder(list[1].find(7)->second).message().find(1)->second, "1");  // SessionLog.START
}

}  // namespace
}  // namespace plait::train
