// Nothing that a damaged or hostile file holds may do more than a ConfigError that names the file.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checksum.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace plait::checkpoint {
namespace {

using namespace test;
using ::testing::HasSubstr;

class DamagedCheckpoint : public InTemporaryDirectory {
 protected:
  void SetUp() override {
    InTemporaryDirectory::SetUp();
    checkpoint_ = write_checkpoint(directory_, 100);
  }
  std::string open_and_verify() {
    return config_error([&] { CheckpointReader(checkpoint_).verify(); });
  }
  fs::path checkpoint_;
};

TEST_F(DamagedCheckpoint, CutOffAtEveryByte) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string whole = read_file(checkpoint_ / name);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      write_file(checkpoint_ / name, whole.substr(0, bytes));
      ASSERT_THAT(open_and_verify(), HasSubstr(name)) << bytes;
    }
    write_file(checkpoint_ / name, whole);
  }
  CheckpointReader(checkpoint_).verify();
}

TEST_F(DamagedCheckpoint, ABitFlippedAnywhere) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string whole = read_file(checkpoint_ / name);
    for (std::size_t byte = 0; byte < whole.size(); ++byte) {
      flip_bit(checkpoint_ / name, byte, static_cast<int>(byte % 8));
      ASSERT_THAT(open_and_verify(), HasSubstr(name)) << byte;
      write_file(checkpoint_ / name, whole);
    }
  }
  CheckpointReader(checkpoint_).verify();
}

TEST_F(DamagedCheckpoint, ADamagedTensorIsNamed) {
  const fs::path file = checkpoint_ / "optimizer.safetensors";
  flip_bit(file, fs::file_size(file) - 1);
  const CheckpointReader reader(checkpoint_);  // opening does not read tensors
  EXPECT_THAT(config_error([&] { reader.verify(); }), HasSubstr("tensor 'tokens.exp_avg' is damaged: checksum"));
}

TEST_F(DamagedCheckpoint, MissingFiles) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string whole = read_file(checkpoint_ / name);
    fs::remove(checkpoint_ / name);
    EXPECT_THAT(open_and_verify(), AllOf(HasSubstr(name), HasSubstr("No such file")));
    write_file(checkpoint_ / name, whole);
  }
}

TEST_F(DamagedCheckpoint, NotARegularFile) {
  fs::remove(checkpoint_ / "model.safetensors");
  ASSERT_EQ(::mkfifo((checkpoint_ / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(open_and_verify(), HasSubstr("not a regular file"));
}

TEST_F(DamagedCheckpoint, AFileOfAnotherCheckpoint) {
  const fs::path other = write_checkpoint(directory_, 200);
  fs::copy_file(other / "model.safetensors", checkpoint_ / "model.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_THAT(open_and_verify(), HasSubstr("tensor 'tokens' is damaged"));
  fs::rename(other, checkpoint_directory(directory_, 300));
  EXPECT_THAT(config_error([&] { CheckpointReader(checkpoint_directory(directory_, 300)); }), HasSubstr("holds step 200"));
}

// A state.json with a right checksum and anything in it.
std::string sealed(const std::string& rest) { return "{\"xxh3\": \"" + to_hex(xxh3(rest)) + "\",\n" + rest; }

TEST(DamagedManifest, IsRefusedByRule) {
  const auto error = [](const std::string& rest) { return config_error([&] { parse_manifest(sealed(rest), "state.json"); }); };
  const std::string start = R"("format": "plait-checkpoint", "version": 1, "step": 1, )";
  EXPECT_EQ(parse_manifest(sealed(start + R"("files": [], "state": {}})"), "state.json").step, 1);
  EXPECT_THAT(error(R"("format": "plait-checkpoint", "version": 2, "step": 1, "files": [], "state": {}})"),
              HasSubstr("'version' is 2: must be 1, the version that this program reads"));
  EXPECT_THAT(error(R"("format": "other", "version": 1})"), HasSubstr("not the state of a plait checkpoint"));
  EXPECT_THAT(error(R"("format": ["plait-checkpoint"]})"), HasSubstr("not the state of a plait checkpoint"));
  EXPECT_THAT(error(R"("format": "plait-checkpoint")"), HasSubstr("state.json: is not JSON (at byte "));
  EXPECT_THAT(error(R"("format": "plait-checkpoint", "step": 1})"), HasSubstr("'version' is missing"));
  EXPECT_THAT(error(R"("format": "plait-checkpoint", "version": 1, "step": -1})"), HasSubstr("'step'"));
  EXPECT_THAT(error(R"("format": "plait-checkpoint", "version": 1, "step": 18446744073709551615})"),
              HasSubstr("must be a whole number from 0 to 1000000000000"));
  EXPECT_THAT(error(start + R"("files": {}, "state": {}})"), HasSubstr("'files' is {...}: must be a list"));
  EXPECT_THAT(error(start + R"("files": [3], "state": {}})"), HasSubstr("'files[0]' is 3: must be an object"));
  EXPECT_THAT(error(start + R"("files": [{"name": "../model.safetensors"}], "state": {}})"),
              HasSubstr("'files[0].name' is \"../model.safetensors\": must be a plain file name"));
  EXPECT_THAT(error(start + R"("files": [{"name": 1}], "state": {}})"), HasSubstr("'files[0].name' is 1: must be a string"));
  EXPECT_THAT(error(start + R"("files": [{"name": "a.safetensors", "bytes": -1}]})"), HasSubstr("'files[0].bytes' is -1"));
  EXPECT_THAT(error(start + R"("files": [{"name": "a.safetensors", "bytes": 1, "header_xxh3": "12"}]})"),
              HasSubstr("16 hexadecimal"));
  EXPECT_THAT(error(start + R"("files": []})"), HasSubstr("'state' is missing"));
  for (const char* state : {"null", "[]", "1", "\"{}\"", "true"})
    EXPECT_THAT(error(start + R"("files": [], "state": )" + state + "}"), HasSubstr("must be an object"));
  EXPECT_THAT(error(R"("format": "plait-checkpoint", "version": 1, "step": 1000000000001})"),
              HasSubstr("must be a whole number from 0 to 1000000000000"));
  for (const char* step : {"null", "1.5", "\"1\"", "[1]", "1e400"})
    EXPECT_THAT(error(R"("format": "plait-checkpoint", "version": 1, "step": )" + std::string(step) + "}"),
                AnyOf(HasSubstr("'step'"), HasSubstr("a number beyond")));
  EXPECT_LT(error(start + R"("files": [{"name": ")" + std::string(1 << 20, 'x') + R"("}]})").size(), 300u) << "a name of a MiB";
  std::string many = start + R"("files": [], "state": {"kernel_choices": [0)";
  for (int i = 0; i < 1'000'000; ++i) many += ",0";
  EXPECT_THAT(error(many + "]}}"), HasSubstr("more than 1000000 values"));
  const std::string deep(100'000, '[');
  EXPECT_THAT(error(start + R"("files": [], "state": )" + deep), HasSubstr("nested deeper"));
}

TEST(DamagedManifest, HandEditsAreRefused) {
  Manifest manifest;
  manifest.step = 100;
  std::string text = to_text(manifest);
  text.replace(text.find("100"), 3, "101");
  EXPECT_THAT(config_error([&] { parse_manifest(text, "state.json"); }), HasSubstr("damaged or edited"));
}

TEST(ManifestTest, IsPlainJsonAndReadsBack) {
  Manifest manifest;
  manifest.step = 100;
  manifest.files = {{"model.safetensors", 123, 0xfedcba9876543210u, {{"a", 1}, {"b\n\"", ~std::uint64_t{0}}}}};
  manifest.state = {{"z", 1e-300}, {"a", "ü"}, {"big", std::uint64_t{1} << 63}};
  const std::string text = to_text(manifest);
  EXPECT_EQ(nlohmann::json::parse(text)["files"][0]["header_xxh3"], "fedcba9876543210");
  const Manifest back = parse_manifest(text, "state.json");
  EXPECT_EQ(to_text(back), text);
  EXPECT_EQ(back.files[0].tensors, manifest.files[0].tensors);
  EXPECT_EQ(back.state, manifest.state);
}

class Safetensors : public InTemporaryDirectory {
 protected:
  // A file with this header and `data` zero bytes.
  fs::path file(const std::string& header, std::size_t data, std::optional<std::uint64_t> claimed = std::nullopt) {
    const std::uint64_t length = claimed.value_or(header.size());
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>((length >> (8 * i)) & 0xff);
    write_file(directory_ / "t.safetensors", bytes + header + std::string(data, '\0'));
    return directory_ / "t.safetensors";
  }
  std::string error(const fs::path& path) {
    const std::string text = config_error([&] { read_safetensors_layout(File::open_read(path)); });
    EXPECT_THAT(text, HasSubstr("t.safetensors"));
    return text;
  }
  std::string error(const std::string& header, std::size_t data) { return error(file(header, data)); }
};

TEST_F(Safetensors, ReadsWhatOthersWrite) {
  // No padding, metadata missing, order of names unlike the order of offsets.
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},"b":{"dtype":"F64","shape":[1,2],"data_offsets":[0,16]}})";
  const SafetensorsLayout layout = read_safetensors_layout(File::open_read(file(header, 24)));
  ASSERT_EQ(layout.tensors.size(), 2u);
  EXPECT_EQ(layout.tensors[0].spec, (TensorSpec{"b", DType::f64, {1, 2}}));
  EXPECT_EQ(layout.tensors[0].offset, 8 + header.size());
  EXPECT_EQ(layout.tensors[1].spec, (TensorSpec{"a", DType::f32, {2}}));
  EXPECT_EQ(layout.tensors[1].offset, 8 + header.size() + 16);
}

TEST_F(Safetensors, ReadsEveryTypeOfTheFormat) {
  // Bits of an element.
  const std::pair<const char*, int> types[] = {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I8", 8},
                                               {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},
                                               {"U32", 32},    {"C64", 64},    {"I64", 64},    {"U64", 64}};
  for (const auto& [type, bits] : types) {
    const std::string its = R"({"b":{"dtype":")" + std::string(type) + R"(","shape":[2,4],"data_offsets":[0,)",
                      after = R"(]},"a":{"dtype":"F32","shape":[1],"data_offsets":[)";
    const auto header = [&](int bytes) {
      return its + std::to_string(bytes) + after + std::to_string(bytes) + "," + std::to_string(bytes + 4) + "]}}";
    };
    const auto length = static_cast<std::size_t>(bits);  // 8 elements
    const SafetensorsLayout layout = read_safetensors_layout(File::open_read(file(header(bits), length + 4)));
    ASSERT_EQ(layout.tensors.size(), 1u) << type;
    EXPECT_EQ(layout.tensors[0].spec, (TensorSpec{"a", DType::f32, {1}}));
    EXPECT_EQ(layout.tensors[0].offset, 8 + header(bits).size() + length) << type;
    ASSERT_EQ(layout.others.size(), 1u) << type;
    EXPECT_EQ(layout.others[0].name, "b");
    EXPECT_EQ(layout.others[0].type, type);
    EXPECT_THAT(error(header(bits + 1), length + 5), HasSubstr("shape and dtype make " + std::to_string(bits))) << type;
  }
  EXPECT_THAT(error(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), HasSubstr("a whole byte"));
  EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[2305843009213693952,4,0],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(error(R"({"a":{"dtype":"I64","shape":[2305843009213693952,4],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(
      error(R"({"a":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[4],"data_offsets":[2,6]}})",
            6),
      HasSubstr("tensor 'b' overlaps"));
}

TEST_F(Safetensors, WritesAlignedContiguousTensors) {
  const SafetensorsLayout layout = layout_safetensors(
      {{"odd", DType::f32, {3}}, {"wide", DType::f64, {1}}, {"one", DType::f32, {}}, {"bytes", DType::u8, {5}}});
  EXPECT_EQ(layout.header.size() % 8, 0u);
  std::uint64_t expected = layout.header.size();
  for (const PlacedTensor& tensor : layout.tensors) {
    EXPECT_EQ(tensor.offset, expected);
    EXPECT_EQ(tensor.offset % size_of(tensor.spec.dtype), 0u) << tensor.spec.name;
    expected += static_cast<std::uint64_t>(tensor.spec.bytes());
  }
  EXPECT_EQ(layout.file_bytes, expected);
  write_file(directory_ / "w.safetensors", layout.header + std::string(layout.file_bytes - layout.header.size(), '\0'));
  const SafetensorsLayout back = read_safetensors_layout(File::open_read(directory_ / "w.safetensors"));
  ASSERT_EQ(back.tensors.size(), layout.tensors.size());
  for (std::size_t i = 0; i < back.tensors.size(); ++i) {
    EXPECT_EQ(back.tensors[i].spec, layout.tensors[i].spec);
    EXPECT_EQ(back.tensors[i].offset, layout.tensors[i].offset);
  }
  const auto header = nlohmann::json::parse(layout.header.substr(8));
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  EXPECT_EQ(header["odd"]["dtype"], "F32");
}

TEST_F(Safetensors, NamesAreTakenOnce) {
  EXPECT_THROW(layout_safetensors({{"a", DType::f32, {1}}, {"a", DType::f32, {2}}}), InternalError);
  EXPECT_THROW(layout_safetensors({{"__metadata__", DType::f32, {1}}}), InternalError);
}

TEST_F(Safetensors, LengthsAreNotTrusted) {
  EXPECT_THAT(error(file("{}", 0, 3)), HasSubstr("claims 3 bytes"));
  EXPECT_THAT(error(file("{}", 0, ~std::uint64_t{0})), HasSubstr("claims 18446744073709551615 bytes"));
  EXPECT_THAT(error(file("{}", 0, std::uint64_t{1} << 62)), HasSubstr("claims"));
  EXPECT_THAT(error(file("", 0)), HasSubstr("does not start with '{'"));
  write_file(directory_ / "t.safetensors", "\1\0\0");
  EXPECT_THAT(error(directory_ / "t.safetensors"), HasSubstr("too few for a header"));
}

TEST_F(Safetensors, AHeaderAboveTheFormatsLimitIsNotRead) {
  const fs::path path = file("{}", 0, 200'000'000);
  fs::resize_file(path, 300'000'000);  // sparse
  EXPECT_THAT(error(path), HasSubstr("more than the format allows"));
}

TEST_F(Safetensors, HeadersAreChecked) {
  EXPECT_THAT(error("[]", 0), HasSubstr("does not start with '{'"));
  EXPECT_THAT(error("{\"a\"", 0), HasSubstr("the header is not JSON (at byte 5)"));
  EXPECT_THAT(error("{\"a\":1e999}", 0), HasSubstr("the header has a number beyond 1.8e308"));
  EXPECT_THAT(error("{\"\xff\":{}}", 0), HasSubstr("the header is not UTF-8 text (at byte 3)"));
  EXPECT_THAT(error("{\"a\":" + std::string(1'000'000, '['), 0), HasSubstr("nested deeper"));
  EXPECT_THAT(error(R"({"a":3})", 0), HasSubstr("exactly dtype, shape and data_offsets"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("exactly dtype"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("unknown dtype \"F31\""));
  EXPECT_THAT(error(R"({"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("unknown dtype 32"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("non-negative"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4), HasSubstr("non-negative"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,4]}})", 4), HasSubstr("not a list"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4), HasSubstr("not a pair"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4), HasSubstr("not a pair"));
}

TEST_F(Safetensors, OffsetsAreChecked) {
  const auto one = [](const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets + "}}";
  };
  EXPECT_THAT(error(one("[4,0]"), 4), HasSubstr("lie outside"));
  EXPECT_THAT(error(one("[4,8]"), 4), HasSubstr("lie outside the file's 4 bytes of data"));
  EXPECT_THAT(error(one("[18446744073709551612,18446744073709551615]"), 4), HasSubstr("lie outside"));
  EXPECT_THAT(error(one("[0,3]"), 4), HasSubstr("hold 3 bytes, shape and dtype make 4"));
  EXPECT_THAT(error(one("[4,8]"), 8), HasSubstr("unused bytes in front of tensor 'a'"));
  EXPECT_THAT(error(one("[0,4]"), 8), HasSubstr("4 bytes follow the last tensor"));
  const std::string overlapping =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  EXPECT_THAT(error(overlapping, 12), HasSubstr("tensor 'b' overlaps the one before it"));
}

// Which of the two counts would differ from reader to reader.
TEST_F(Safetensors, ANameInTheHeaderTwiceIsRefused) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(error(R"({"a":)" + entry + R"(,"b":3,"a":)" + entry + "}", 4), HasSubstr("tensor 'a' is in the header twice"));
  EXPECT_THAT(error(R"({"a\n":3,"\u0061\n":)" + entry + "}", 4), HasSubstr("tensor 'a?' is in the header twice"));
  EXPECT_THAT(error(R"({"a":{"dtype":"I32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("an entry has 'dtype' twice"));
  // In two objects, or in one that encloses the other, it is another name.
  const std::string nested = R"({"__metadata__":{"a":"1","dtype":"2"},"a":)" + entry + "}";
  EXPECT_EQ(read_safetensors_layout(File::open_read(file(nested, 4))).tensors.size(), 1u);
}

}  // namespace
}  // namespace plait::checkpoint
