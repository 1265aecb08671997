// Weights that come straight from files of transformers (tests/app/transformers) into any layout's shards.
#include "interop/foreign_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_reader.h"
#include "core/error.h"
#include "interop/foreign_models.h"
#include "interop/trained_model.h"
#include "launch/launch.h"
#include "test_paths.h"
#include "train/session.h"
#include "train/training_checkpoint.h"

namespace plait::interop {
namespace {

namespace fs = std::filesystem;
namespace test = checkpoint::test;
using checkpoint::CheckpointReader;
using checkpoint::PlacedTensor;
using checkpoint::read_safetensors_layout;
using checkpoint::SafetensorsLayout;
using checkpoint::TensorSpec;

// gpt2's matrices are stored transposed; qwen2's queries, keys and values apart; mistral is in four files.
constexpr const char* stored_models[] = {"gpt2", "gpt2-untied", "llama-f16", "llama-bf16", "mistral", "qwen2"};
fs::path fixture(const std::string& model) { return fs::path(test_paths::source) / "tests/app/transformers" / model; }

class ForeignWeightsOf : public test::InTemporaryDirectory, public testing::WithParamInterface<const char*> {
 protected:
  fs::path imported() {
    interop::import_model({.model = fixture(GetParam()), .out = directory_ / "imported"});
    return directory_ / "imported/checkpoints/step-00000000";
  }
};

INSTANTIATE_TEST_SUITE_P(Families, ForeignWeightsOf, testing::ValuesIn(stored_models), [](const auto& model) {
  std::string name = model.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST_P(ForeignWeightsOf, EveryBlockIsThatOfTheImportedTensor) {
  const CheckpointReader whole(imported());
  const ForeignWeights weights(fixture(GetParam()));
  for (const model::Parameter& parameter : model::parameters(weights.shape())) {
    const TensorSpec& spec = whole.tensor(parameter.name);
    ASSERT_EQ(weights.tensor(parameter.name), spec);
    const std::int64_t rows = spec.rows(), columns = spec.columns();
    for (const model::ElementBlock& block :
         {model::ElementBlock{.row = 0, .rows = rows, .column = 0, .columns = columns},
          {.row = rows / 3, .rows = rows / 2, .column = 0, .columns = columns},
          {.row = 0, .rows = rows, .column = columns / 3, .columns = (columns + 1) / 2},
          {.row = rows / 4, .rows = rows / 2, .column = columns / 2, .columns = columns - columns / 2},
          {.row = rows - 1, .rows = 1, .column = columns - 1, .columns = 1},
          {.row = rows, .rows = 0, .column = 0, .columns = columns}}) {
      std::vector<float> expected(static_cast<std::size_t>(block.elements())), values(expected.size(), -1.0F);
      whole.read(parameter.name, block, expected.data());
      const std::uint64_t before = weights.bytes_read();
      weights.read(parameter.name, block, values.data());
      ASSERT_EQ(values, expected) << parameter.name << " from row " << block.row << ", column " << block.column;
      EXPECT_EQ(weights.bytes_read() - before, values.size() * size_of(weights.form().dtype)) << parameter.name;
    }
    EXPECT_THROW(weights.read(parameter.name, {.row = 1, .rows = rows, .column = 0, .columns = columns}, nullptr),
                 InternalError);
  }
}

struct ShardedLayout {
  const char* parallel;
  int ranks;
};

// Every rank reads the bytes of the elements that it keeps, and no others.
TEST_P(ForeignWeightsOf, LoadIntoEveryLayoutAndNobodyReadsMoreThanItKeeps) {
  const std::string expected = test::read_file(imported() / "model.safetensors");
  const bool splits_keys = std::string(GetParam()) != "mistral";  // it has one
  for (const ShardedLayout& layout :
       {ShardedLayout{"{}", 1}, {"{tensor: 2, pipeline: 2}", 4}, {"{data: 2, zero: 1, pipeline: 2}", 4}}) {
    if (!splits_keys && std::string(layout.parallel).find("tensor") != std::string::npos) continue;
    const fs::path run_dir = directory_ / ("run" + std::to_string(layout.ranks) + layout.parallel[1]);
    fs::create_directories(run_dir);
    Config config = interop::config_of_model(
        interop::find_model(fixture(GetParam())), "run",
        {std::string("parallel=") + layout.parallel, "launch={device: cpu, ranks: " + std::to_string(layout.ranks) + "}",
         "train={global_batch: 4, micro_batch: 2}", "data.sequence_length=16"});
    std::vector<std::uint64_t> read(static_cast<std::size_t>(layout.ranks)), kept(read.size());
    const auto body = [&](launch::RankContext& rank) {
      train::Session session(config, parallel::Decision{}, config.model.vocab, rank);
      session.run([&] {
        const ForeignWeights weights(fixture(GetParam()));
        train::synchronize_load(session.interpreter(), weights, checkpoint::Restored::weights);
        const auto me = static_cast<std::size_t>(rank.rank);
        read[me] = weights.bytes_read();
        for (const auto& piece : session.plan().flat.state_pieces())
          kept[me] += static_cast<std::uint64_t>(piece.count) * size_of(weights.form().dtype);
        train::synchronize_save(
            session.interpreter(), run_dir, 2, nlohmann::ordered_json::object(), 1,
            [&](const std::string& at) { rank.meeting("save", std::chrono::seconds(60)).meet(at); }, *rank.life);
      });
    };
    ASSERT_EQ(launch::launch(launch::plan_launch(config), body, {}), 0);
    EXPECT_EQ(read, kept) << layout.parallel;
    const std::uint64_t all = std::accumulate(read.begin(), read.end(), std::uint64_t{0});
    if (layout.ranks > 1) {
      for (const std::uint64_t bytes : read) EXPECT_LT(bytes, all * 2 / 3) << layout.parallel;
    }
    EXPECT_EQ(test::read_file(run_dir / "checkpoints/step-00000002/model.safetensors"), expected) << layout.parallel;
  }
}

using ForeignWeightsFiles = test::InTemporaryDirectory;

// What is changed in a header, given the bytes of data behind it.
using HeaderChange = std::function<void(nlohmann::json& header, std::size_t bytes)>;

// Writes a safetensors file with another header and with `more` behind its data.
void rewrite_header(const fs::path& from, const fs::path& to, const HeaderChange& change, const std::string& more = "") {
  const std::string bytes = test::read_file(from);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  nlohmann::json header = nlohmann::json::parse(bytes.substr(sizeof length, length));
  const std::string data = bytes.substr(sizeof length + length);
  change(header, data.size());
  const std::string text = header.dump();
  length = text.size();
  test::write_file(to, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data + more);
}

// A head beside the table that it is tied to is left alone where it is equal, and refused where it is not.
TEST_F(ForeignWeightsFiles, ATiedHeadIsItsTable) {
  const fs::path with_head = directory_ / "with-head";
  fs::copy(fixture("gpt2"), with_head);
  const File from = File::open_read(fixture("gpt2") / "model.safetensors");
  const SafetensorsLayout before = read_safetensors_layout(from);
  std::vector<TensorSpec> specs;
  for (const PlacedTensor& tensor : before.tensors) specs.push_back(tensor.spec);
  const TensorSpec table = *std::ranges::find(specs, "transformer.wte.weight", &TensorSpec::name);
  specs.push_back({"lm_head.weight", table.dtype, table.shape});
  const SafetensorsLayout after = layout_safetensors(specs);
  fs::remove(with_head / "model.safetensors");
  const File to = File::create(with_head / "model.safetensors");
  to.write_at(0, after.header.data(), after.header.size());
  for (const PlacedTensor& tensor : after.tensors) {
    const std::string source = tensor.spec.name == "lm_head.weight" ? table.name : tensor.spec.name;
    std::string bytes(static_cast<std::size_t>(tensor.spec.bytes()), '\0');
    from.read_at(std::ranges::find(before.tensors, source, [](const auto& t) { return t.spec.name; })->offset, bytes.data(),
                 bytes.size());
    to.write_at(tensor.offset, bytes.data(), bytes.size());
  }
  ForeignWeights(with_head).verify();
  EXPECT_NE(ForeignWeights(with_head).digest(), ForeignWeights(fixture("gpt2")).digest());
  const auto head = std::ranges::find(after.tensors, "lm_head.weight", [](const auto& t) { return t.spec.name; });
  // The same NaN in both is no difference.
  const auto in_table = std::ranges::find(after.tensors, table.name, [](const auto& t) { return t.spec.name; });
  const float nan = std::numeric_limits<float>::quiet_NaN(), other = 3;
  for (const auto& tensor : {head, in_table}) to.write_at(tensor->offset + 80, &nan, sizeof nan);
  ForeignWeights(with_head).verify();
  to.write_at(head->offset + 40, &other, sizeof other);
  EXPECT_NE(
      config_error([&] { ForeignWeights(with_head).verify(); }).find("'lm_head.weight' differs from 'transformer.wte.weight'"),
      std::string::npos);
}

// Where they are one, either name may be in the files.
TEST_F(ForeignWeightsFiles, ATableMayBeStoredAsTheHeadThatIsTiedToIt) {
  for (const std::string model : {"gpt2", "qwen2"}) {
    const fs::path only_head = directory_ / model;
    fs::copy(fixture(model), only_head);
    const std::string table = model == "gpt2" ? "transformer.wte.weight" : "model.embed_tokens.weight";
    const auto rename = [&](nlohmann::json& header, std::size_t) {
      header["lm_head.weight"] = header.at(table);
      header.erase(table);
    };
    rewrite_header(fixture(model) / "model.safetensors", only_head / "model.safetensors", rename);
    const ForeignWeights weights(only_head), before(fixture(model));
    weights.verify();
    const model::ElementBlock block{.row = 1, .rows = 3, .column = 0, .columns = 4};
    std::vector<float> values(12), expected(12);
    weights.read("embedding.tokens.weight", block, values.data());
    before.read("embedding.tokens.weight", block, expected.data());
    EXPECT_EQ(values, expected) << model;
    EXPECT_EQ(weights.form().prefix, before.form().prefix);
  }
  // Not where they are two.
  fs::copy(fixture("gpt2-untied"), directory_ / "untied");
  rewrite_header(fixture("gpt2-untied") / "model.safetensors", directory_ / "untied/model.safetensors",
                 [](nlohmann::json& header, std::size_t) {
                   header["more"] = header.at("transformer.wte.weight");
                   header.erase("transformer.wte.weight");
                 });
  EXPECT_NE(config_error([&] { ForeignWeights{directory_ / "untied"}; }).find("transformer.wte.weight: is missing"),
            std::string::npos);
}

// Buffers may be of any type: nobody reads them. A weight may not.
TEST_F(ForeignWeightsFiles, OnlyWeightsMustBeOfATypeThatPlaitReads) {
  const fs::path with_buffers = directory_ / "with-buffers";
  fs::copy(fixture("gpt2"), with_buffers);
  const auto rewrite = [&](const HeaderChange& change) {
    rewrite_header(fixture("gpt2") / "model.safetensors", with_buffers / "model.safetensors", change, std::string(32, '\1'));
  };
  const auto add_buffers = [](nlohmann::json& header, std::size_t end) {
    header["transformer.h.0.attn.bias"] = {{"dtype", "BOOL"}, {"shape", {1, 1, 4, 4}}, {"data_offsets", {end, end + 16}}};
    header["transformer.position_ids"] = {{"dtype", "I64"}, {"shape", {1, 2}}, {"data_offsets", {end + 16, end + 32}}};
  };
  rewrite(add_buffers);
  const ForeignWeights weights(with_buffers), before(fixture("gpt2"));
  std::vector<float> values(4), expected(4);
  const model::ElementBlock block{.row = 1, .rows = 1, .column = 0, .columns = 4};
  weights.read("embedding.tokens.weight", block, values.data());
  before.read("embedding.tokens.weight", block, expected.data());
  EXPECT_EQ(values, expected);
  rewrite([&](nlohmann::json& header, std::size_t end) {
    add_buffers(header, end);
    header["transformer.wpe.weight"]["dtype"] = "I32";
    header["transformer.wte.weight"]["dtype"] = "U32";
  });
  const std::string problem = config_error([&] { ForeignWeights{with_buffers}; });
  EXPECT_NE(problem.find("transformer.wte.weight=U32: must be F32, F16 or BF16"), std::string::npos) << problem;
  EXPECT_NE(problem.find("transformer.wpe.weight=i32: must be F32, F16 or BF16"), std::string::npos) << problem;
}

// Names are anyone's: they end no message and begin no line of one.
TEST_F(ForeignWeightsFiles, NamesOfTensorsAreShownOnOneLine) {
  fs::copy(fixture("llama"), directory_ / "hf");
  const auto with = [&](const std::string& name, const nlohmann::json& entry) {
    rewrite_header(
        fixture("llama") / "model.safetensors", directory_ / "hf/model.safetensors",
        [&](nlohmann::json& header, std::size_t end) {
          header[name] = entry;
          header[name]["data_offsets"] = {end, end + 4};
        },
        std::string(4, '\0'));
    return config_error([&] { ForeignWeights{directory_ / "hf"}; });
  };
  const nlohmann::json good{{"dtype", "F32"}, {"shape", {1}}};
  EXPECT_NE(with(std::string("a\0b\nplait: c", 12), good).find(": a?b?plait: c: is no tensor of a llama of this shape"),
            std::string::npos);
  EXPECT_NE(with("a\nb", {{"dtype", "F\n1"}, {"shape", {1}}}).find("tensor 'a?b': unknown dtype"), std::string::npos);
  EXPECT_NE(with(std::string(2000, 'a'), {{"dtype", "F1"}, {"shape", {1}}}).find("aaa...': unknown dtype"), std::string::npos);
}

TEST_F(ForeignWeightsFiles, AnIndexNamesATensorOnce) {
  fs::copy(fixture("mistral"), directory_ / "hf");
  const fs::path index = directory_ / "hf/model.safetensors.index.json";
  nlohmann::json good;
  std::ifstream(index) >> good;
  const std::string name = "model.norm.weight", file = good.at("weight_map").at(name);
  const std::string entry = '"' + name + "\": \"" + file + "\", ";
  std::string text = good.dump();
  const std::string map = "\"weight_map\":{";
  text.insert(text.find(map) + map.size(), entry);
  std::ofstream(index) << text;
  EXPECT_NE(config_error([&] { ForeignWeights{directory_ / "hf"}; }).find("index.json: names 'model.norm.weight' twice"),
            std::string::npos);
}

// What the digest stands for without reading tensors.
TEST_F(ForeignWeightsFiles, DigestsDifferWhereFilesDo) {
  fs::copy(fixture("llama"), directory_ / "a");
  fs::copy(fixture("llama"), directory_ / "b");
  const auto time = fs::last_write_time(directory_ / "a/model.safetensors");
  fs::last_write_time(directory_ / "b/model.safetensors", time);
  EXPECT_EQ(ForeignWeights(directory_ / "a").digest(), ForeignWeights(directory_ / "b").digest());
  fs::last_write_time(directory_ / "b/model.safetensors", time - std::chrono::seconds(5));
  EXPECT_NE(ForeignWeights(directory_ / "a").digest(), ForeignWeights(directory_ / "b").digest());
  fs::last_write_time(directory_ / "b/model.safetensors", time);
  std::ofstream(directory_ / "b/config.json", std::ios::app) << "\n";
  EXPECT_NE(ForeignWeights(directory_ / "a").digest(), ForeignWeights(directory_ / "b").digest());
}

}  // namespace
}  // namespace plait::interop
