// plait import and export, against models that transformers wrote and the logits it gives for them
// (tests/app/transformers/make_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "config/config.h"
#include "core/dtype.h"
#include "core/file.h"
#include "program_test.h"
#include "pytorch_training.h"
#include "tensor_values.h"
#include "test_paths.h"

namespace plait::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const fs::path fixtures = fs::path(test_paths::source) / "tests/app/transformers";

// All tensors of a directory: shape and type, and bytes.
std::map<std::string, std::string> tensors_of(const fs::path& directory) {
  std::map<std::string, std::string> tensors;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    const File in = File::open_read(entry.path());
    for (const checkpoint::PlacedTensor& t : checkpoint::read_safetensors_layout(in).tensors) {
      std::string bytes(static_cast<std::size_t>(t.spec.bytes()), '\0');
      in.read_at(t.offset, bytes.data(), bytes.size());
      std::string shape = std::string(to_string(t.spec.dtype)) + ":";
      for (const std::int64_t dim : t.spec.shape) shape += std::to_string(dim) + ",";
      tensors[t.spec.name] = shape + bytes;
    }
  }
  return tensors;
}

class Transformers : public ProgramTest {
 protected:
  void copy(const std::string& model) { fs::copy(fixtures / model, path("hf"), fs::copy_options::recursive); }
  void change(const std::string& field, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(path("hf/config.json")));
    config[nlohmann::json::json_pointer("/" + field)] = value;
    std::ofstream(path("hf/config.json")) << config;
  }
  // A shard of 2000 tokens below 61.
  std::string write_tokens() {
    std::string shard;
    for (int i = 0; i < 2000; ++i) shard += static_cast<char>(i * i % 61), shard += '\0';
    return write("train.u16.bin", shard);
  }
};

class TransformersModels : public Transformers, public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Families, TransformersModels,
                         testing::Values("gpt2", "gpt2-untied", "llama", "llama3", "llama-bf16", "llama-f16", "llama-biases",
                                         "mistral", "mistral-window", "qwen2", "qwen2-window", "qwen3"),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(TransformersModels, GiveTheirLogitsAndComeOutAsTheyWentIn) {
  const fs::path model = fixtures / GetParam();
  const Outcome imported = plait("import " + model.string() + " --out @/run");
  ASSERT_EQ(imported.status, 0) << imported.errors;
  const std::vector<float> expected = values_of(model / "logits.safetensors");
  for (const char* layout : {"data=1", "tensor=2 pipeline=2"}) {
    // One key head cannot be split.
    if (std::string(GetParam()) == "mistral" && std::string(layout) != "data=1") layout = "pipeline=2";
    const Outcome done =
        plait("eval @/run --set launch.device=cpu --set precision.compute=fp32 --layout '" + std::string(layout) +
              "' --tokens " + (model / "tokens.safetensors").string() + " --logits @/logits");
    ASSERT_EQ(done.status, 0) << done.errors;
    const std::vector<float> values = values_of(path("logits"));
    ASSERT_EQ(values.size(), expected.size());
    const std::size_t vocab = 61;
    double largest = 0, divergence = 0;
    for (std::size_t row = 0; row < values.size(); row += vocab) {
      double sum = 0, expected_sum = 0;
      for (std::size_t v = row; v < row + vocab; ++v) {
        largest = std::max(largest, std::abs(static_cast<double>(values[v]) - static_cast<double>(expected[v])));
        sum += std::exp(static_cast<double>(values[v])), expected_sum += std::exp(static_cast<double>(expected[v]));
      }
      for (std::size_t v = row; v < row + vocab; ++v) {
        const double log_p = static_cast<double>(expected[v]) - std::log(expected_sum);
        divergence += std::exp(log_p) * (log_p - (static_cast<double>(values[v]) - std::log(sum)));
      }
    }
    EXPECT_LT(largest, 1e-4) << layout;
    EXPECT_LT(std::abs(divergence) / static_cast<double>(values.size() / vocab), 1e-9) << layout;
  }
  const Outcome exported = plait("export @/run --out @/out");
  ASSERT_EQ(exported.status, 0) << exported.errors;
  EXPECT_EQ(tensors_of(path("out")), tensors_of(model));
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(path("out/config.json"))),
            nlohmann::json::parse(std::ifstream(model / "config.json")));
  // In several files.
  ASSERT_EQ(plait("export @/run --out @/parts --max-shard-bytes 3000").status, 0);
  EXPECT_TRUE(fs::exists(path("parts/model.safetensors.index.json")));
  EXPECT_EQ(tensors_of(path("parts")), tensors_of(model));
  ASSERT_EQ(plait("import @/parts --out @/again").status, 0);
  ASSERT_EQ(plait("export @/again --out @/out2").status, 0);
  EXPECT_EQ(tensors_of(path("out2")), tensors_of(model));
}

// The same weights and batches through PyTorch's AdamW (scripts/compare-with-transformers --json), in fp32.
TEST_P(TransformersModels, TrainAsPyTorchDoes) {
  const fs::path model = fixtures / GetParam();
  const nlohmann::json expected = nlohmann::json::parse(std::ifstream(model / "training.json"));
  ASSERT_EQ(plait("import " + model.string() + " --out @/run").status, 0);
  const Outcome trained = plait("train --init-from @/run --set run.dir=@ --set run.name=trained --set parallel.pipeline=2" +
                                options_of(expected, (fixtures / "tokens.u16.bin").string()));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  expect_steps_of(expected, path("trained/metrics.jsonl"));
}

// A new run from imported weights, and what it learned in the other program's form.
TEST_F(Transformers, TrainOnAndComeOut) {
  ASSERT_EQ(plait("import " + (fixtures / "qwen2").string() + " --out @/run").status, 0);
  EXPECT_EQ(plait("sample @/run --cpu --prompt x").status, 2);  // there is no tokenizer
  const Outcome trained = plait("train --init-from @/run --set run.name=tuned --set run.dir=" + folder.path() +
                                " --set 'data.train=[" + write_tokens() +
                                "]' --set data.sequence_length=16 --set train.steps=3 --set train.global_batch=4 "
                                "--set launch.device=cpu --set log.tensorboard=false");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  ASSERT_EQ(plait("export @/tuned --out @/out").status, 0);
  const auto before = tensors_of(fixtures / "qwen2"), after = tensors_of(path("out"));
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, bytes] : before) EXPECT_NE(after.at(name), bytes) << name;
  const nlohmann::json config = nlohmann::json::parse(std::ifstream(path("out/config.json")));
  EXPECT_EQ(config["model_type"], "qwen2");
  ASSERT_EQ(plait("import @/out --out @/again/").status, 0);
  const std::string text =
      " --set launch.device=cpu --tokens " + (fixtures / "qwen2/tokens.safetensors").string() + " --logits @/";
  ASSERT_EQ(plait("eval @/tuned" + text + "a").status, 0);
  ASSERT_EQ(plait("eval @/again" + text + "b").status, 0);
  EXPECT_EQ(values_of(path("a")), values_of(path("b")));
}

TEST_F(Transformers, RoundTheWeightsOfARunInDoublePrecision) {
  write("c.yaml",
        "run: {name: run, dir: " + folder.path() + "}\n" +
            "model: {layers: 2, hidden: 16, heads: 2, ffn: 24, vocab: 61, norm: rms_norm, mlp: swiglu, position: rope, "
            "bias: false, tie_embeddings: false}\n"
            "precision: {compute: fp64}\n"
            "launch: {device: cpu}\n"
            "data: {train: [" +
            write_tokens() +
            "], tokenizer: tokens, sequence_length: 16}\n"
            "train: {steps: 2, global_batch: 4, micro_batch: 2}\n");
  const Outcome trained = plait("train @/c.yaml");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const Outcome exported = plait("export @/run --out @/out");
  ASSERT_EQ(exported.status, 0) << exported.errors;
  for (const auto& [name, bytes] : tensors_of(path("out"))) EXPECT_TRUE(bytes.starts_with("f32:")) << name;
  ASSERT_EQ(plait("import @/out --out @/again").status, 0);
  const std::string text = " --tokens " + (fixtures / "qwen2/tokens.safetensors").string() + " --logits @/";
  ASSERT_EQ(plait("eval @/run" + text + "a").status, 0);
  ASSERT_EQ(plait("eval @/again --set launch.device=cpu" + text + "b").status, 0);
  const std::vector<float> ours = values_of(path("a")), again = values_of(path("b"));
  ASSERT_EQ(again.size(), ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(again[i], ours[i], 1e-5);

  write("again/huggingface/form.json", R"({"prefix": "", "dtype": "fp32"})");
  EXPECT_THAT(refused("export @/again --out @/out2"), HasSubstr("form.json: dtype=fp32: must be f32, f16 or bf16"));
}

// As merging adapters leaves them: norms in fp32 beside matrices in bf16.
TEST_F(Transformers, OfTwoTypesComeOutAsTheyWentIn) {
  copy("llama");
  std::vector<checkpoint::TensorSpec> specs;
  std::vector<std::vector<float>> values;
  {
    const File in = File::open_read(path("hf/model.safetensors"));
    for (const checkpoint::PlacedTensor& t : checkpoint::read_safetensors_layout(in).tensors) {
      values.push_back(values_of(path("hf/model.safetensors"), t.spec.name));
      specs.push_back(t.spec);
      if (t.spec.name.find("norm") == std::string::npos) specs.back().dtype = DType::bf16;
    }
  }
  const checkpoint::SafetensorsLayout layout = checkpoint::layout_safetensors(specs);
  fs::remove(path("hf/model.safetensors"));
  {
    const File out = File::create(path("hf/model.safetensors"));
    out.write_at(0, layout.header.data(), layout.header.size());
    for (std::size_t t = 0; t < specs.size(); ++t) {
      const auto& placed = *std::ranges::find(layout.tensors, specs[t].name, [](const auto& p) { return p.spec.name; });
      std::vector<BFloat16> rounded(values[t].begin(), values[t].end());
      const bool narrow = specs[t].dtype == DType::bf16;
      out.write_at(placed.offset, narrow ? static_cast<const void*>(rounded.data()) : values[t].data(),
                   static_cast<std::size_t>(placed.spec.bytes()));
    }
  }
  ASSERT_EQ(plait("import @/hf --out @/run").status, 0);
  ASSERT_EQ(plait("export @/run --out @/out").status, 0);
  EXPECT_EQ(tensors_of(path("out")), tensors_of(path("hf")));
  ASSERT_EQ(plait("export @/run --out @/narrow --dtype bf16").status, 0);
  for (const auto& [name, bytes] : tensors_of(path("narrow"))) EXPECT_TRUE(bytes.starts_with("bf16:")) << name;
  write("run/huggingface/form.json", R"({"prefix": "model.", "dtype": "f32", "dtypes": {"a": 1}})");
  EXPECT_THAT(refused("export @/run --out @/out2"), HasSubstr("form.json: dtypes/a=1: must be f32, f16 or bf16"));
}

// transformers would take the token ids of its class, and rotary positions by the name that its version knows.
TEST_F(Transformers, OfARunOfItsOwnSayWhichTokensEndADocument) {
  const auto exported = [&](const std::string& model, const std::string& data) {
    write("c.yaml", "run: {name: run, dir: " + folder.path() + "}\n" +
                        "model: {layers: 2, hidden: 16, heads: 2, ffn: 24, vocab: 61, norm: rms_norm, mlp: swiglu, position: "
                        "rope, bias: false" +
                        model + "}\nlaunch: {device: cpu}\nparallel: {data: 1}\ndata: {train: [" + write_tokens() +
                        "], tokenizer: tokens, sequence_length: 16" + data +
                        "}\ntrain: {steps: 1, global_batch: 1, micro_batch: 1}\n");
    fs::remove_all(path("run")), fs::remove_all(path("out"));
    EXPECT_EQ(plait("train @/c.yaml").status, 0);
    EXPECT_EQ(plait("export @/run --out @/out").status, 0);
    return nlohmann::json::parse(std::ifstream(path("out/config.json")));
  };
  const nlohmann::json plain = exported("", "");
  EXPECT_TRUE(plain.at("eos_token_id").is_null());
  EXPECT_TRUE(plain.at("bos_token_id").is_null());
  const nlohmann::json ended = exported("", ", document_token: {id: 7, place: end}");
  EXPECT_EQ(ended.at("eos_token_id"), 7);
  EXPECT_TRUE(ended.at("bos_token_id").is_null());
  const std::string scaling = ", rope_scaling: {factor: 8, original_max_position: 8}";
  const nlohmann::json begun = exported(scaling, ", document_token: {id: 7, place: begin}");
  EXPECT_EQ(begun.at("eos_token_id"), 7);
  EXPECT_EQ(begun.at("bos_token_id"), 7);
  EXPECT_EQ(begun.at("rope_scaling").at("factor"), 8);
  EXPECT_EQ(begun.at("rope_scaling"), begun.at("rope_parameters"));
  EXPECT_EQ(plait("import @/out --out @/again").status, 0);
  EXPECT_EQ(load_config(path("again/config.yaml")).model.rope_scaling.factor, 8);
}

TEST_F(Transformers, AreNotRoundedToInfinity) {
  copy("llama");
  {
    const File file = File::open_write(path("hf/model.safetensors"));
    const float large = 1e6F;
    file.write_at(checkpoint::read_safetensors_layout(file).tensors.at(0).offset, &large, sizeof large);
  }
  ASSERT_EQ(plait("import @/hf --out @/run").status, 0);
  EXPECT_THAT(refused("export @/run --out @/out --dtype f16"), AllOf(HasSubstr("which f16 cannot hold"), HasSubstr("1000000")));
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_EQ(plait("export @/run --out @/out --dtype bf16").status, 0);
}

TEST_F(Transformers, RefuseWhatPlaitCannotCompute) {
  copy("llama");
  const auto refusal = [&](const std::string& field, const nlohmann::json& value) {
    const nlohmann::json before = nlohmann::json::parse(std::ifstream(path("hf/config.json")));
    change(field, value);
    const std::string words = refused("import @/hf --out @/run");
    std::ofstream(path("hf/config.json")) << before;
    EXPECT_FALSE(fs::exists(path("run")));
    EXPECT_FALSE(fs::exists(path("run.part")));
    return words;
  };
  EXPECT_THAT(refusal("model_type", "gemma2"), AllOf(HasSubstr("config.json: model_type=gemma2"), HasSubstr("gpt2, llama")));
  EXPECT_THAT(refusal("hidden_act", "gelu"), HasSubstr("hidden_act=gelu"));
  EXPECT_THAT(refusal("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}), HasSubstr("rope_scaling.rope_type=yarn"));
  EXPECT_THAT(refusal("rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", 1e4}}),
              HasSubstr("rope_parameters.factor: is missing: must be a number from 1 to 1e+06"));
  EXPECT_THAT(refusal("rope_scaling", {{"factor", 8}}), HasSubstr("rope_scaling.rope_type: is missing"));
  EXPECT_THAT(refusal("rope_scaling", "yarn"), HasSubstr("config.json: rope_scaling=yarn: must be an object"));
  EXPECT_THAT(refusal("rope_scaling", nlohmann::json::array({{{"type", "linear"}}})), HasSubstr("must be an object"));
  EXPECT_THAT(refusal("rope_parameters", {{"full_attention", {{"rope_type", "yarn"}, {"factor", 4}}}}),
              HasSubstr("rope_parameters.full_attention={...}: must not be an object: plait has the "
                        "same rotary positions in all layers"));
  EXPECT_THAT(
      refusal("sliding_window", 16),
      HasSubstr("sliding_window=16: must be null or at least max_position_embeddings=32: transformers' llama has none"));
  EXPECT_THAT(refusal("attention_bias", true), HasSubstr("attention_bias=true"));
  EXPECT_THAT(refusal("model_type", "qwen3"), HasSubstr("model.layers.0.self_attn.q_norm.weight"));
  EXPECT_THAT(refusal("quantization_config", {{"bits", 4}}), HasSubstr("quantization_config"));
  EXPECT_THAT(refusal("num_attention_heads", -4), HasSubstr("num_attention_heads=-4: must be a whole number from 1"));
  EXPECT_THAT(refusal("num_key_value_heads", 3),
              HasSubstr("config.json: num_key_value_heads=3: must divide num_attention_heads="));
  EXPECT_THAT(refusal("head_dim", 7), HasSubstr("config.json: head_dim=7: must make heads of an even width, not 7"));
  EXPECT_THAT(refusal("hidden_size", "16"), HasSubstr("hidden_size=16: must be a whole number"));
  EXPECT_THAT(refusal("hidden_size", nullptr), HasSubstr("hidden_size=null: must be a whole number from 1"));
  EXPECT_THAT(refusal("intermediate_size", 28),
              AllOf(HasSubstr(path("hf/model.safetensors") + ": model.layers.0.mlp.down_proj.weight=[16, 24]"),
                    HasSubstr("must be [16, 28]")));
  EXPECT_THAT(refusal("num_hidden_layers", 1), HasSubstr(path("hf/model.safetensors") + ": model.layers.1."));
  EXPECT_THAT(refusal("num_hidden_layers", 3), HasSubstr(path("hf") + ": model.layers.2.input_layernorm.weight: is missing"));
  change("model_type", "qwen3");
  EXPECT_THAT(refusal("attention_bias", true), HasSubstr("attention_bias=true: must be false"));
  change("rope_parameters", {{"a~b/\n", {{"x", 1}}}});
  EXPECT_THAT(refusal("model_type", "llama"), HasSubstr("rope_parameters.a~b/?={...}: must not be an object"));
}

// Versions of transformers differ in which of several places they read.
TEST_F(Transformers, WhoseRotaryFieldsContradictEachOtherAreRefused) {
  copy("llama3");
  const nlohmann::json config = nlohmann::json::parse(std::ifstream(path("hf/config.json")));
  const nlohmann::json section = config.at("rope_parameters");
  const auto with = [&](const nlohmann::json& changes) {
    nlohmann::json changed = config;
    changed.update(changes);
    std::ofstream(path("hf/config.json")) << changed;
    fs::remove_all(path("run"));
    return plait("import @/hf --out @/run");
  };
  const auto refusal = [&](const nlohmann::json& changes) {
    const Outcome done = with(changes);
    EXPECT_EQ(done.status, 2) << changes;
    return done.errors;
  };
  nlohmann::json other = section, older = section;
  other["factor"] = 2;
  EXPECT_THAT(refusal({{"rope_scaling", other}}), HasSubstr("must say the same as rope_parameters, or be null"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"rope_type", "default"}, {"rope_theta", section["rope_theta"]}}}}),
              HasSubstr("config.json: rope_scaling={"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}}), HasSubstr("low_freq_factor: is missing"));
  other = section, other["rope_theta"] = 7;
  EXPECT_THAT(refusal({{"rope_scaling", other}}),
              HasSubstr("rope_scaling.rope_theta=7: must be 100, as rope_parameters.rope_theta is"));
  other.erase("rope_theta");
  EXPECT_THAT(refusal({{"rope_scaling", other}}), HasSubstr("rope_scaling.rope_theta: is missing: must be 100"));
  other["type"] = "default";
  EXPECT_THAT(refusal({{"rope_scaling", other}}),
              HasSubstr("rope_scaling.type=default: must be llama3, as rope_scaling.rope_type is"));
  EXPECT_THAT(
      refusal({{"original_max_position_embeddings", 3}}),
      HasSubstr("original_max_position_embeddings=3: must be 16, as rope_parameters.original_max_position_embeddings is"));

  older.erase("rope_theta"), older["type"] = "llama3";
  for (const nlohmann::json& changes :
       std::vector<nlohmann::json>{{{"rope_scaling", section}},
                                   {{"rope_scaling", nullptr}},
                                   {{"rope_scaling", nlohmann::json::object()}},
                                   {{"rope_theta", 100.0}},
                                   {{"rope_theta", 100.0}, {"rope_scaling", older}},
                                   {{"rope_theta", 100.0}, {"rope_scaling", older}, {"rope_parameters", nullptr}},
                                   {{"original_max_position_embeddings", section["original_max_position_embeddings"]}}}) {
    const Outcome done = with(changes);
    EXPECT_EQ(done.status, 0) << changes << done.errors;
    const ModelConfig model = load_config(path("run/config.yaml")).model;
    EXPECT_EQ(model.rope_base, 100) << changes;
    EXPECT_EQ(model.rope_scaling.factor, 8) << changes;
  }
}

// Fine-tuning changes the weights, and nothing beside them.
TEST_F(Transformers, ComeOutOfARunWithWhatTheyHadBesideTheWeights) {
  copy("llama");
  change("bos_token_id", 1), change("eos_token_id", {2, 3}), change("pad_token_id", 0);
  write("hf/generation_config.json", R"({"eos_token_id": [2, 3], "temperature": 0.5})");
  write("hf/tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast"})");
  write("hf/special_tokens_map.json", R"({"bos_token": "<s>"})");
  const nlohmann::json given = nlohmann::json::parse(std::ifstream(path("hf/config.json")));
  const std::string settings =
      " --set run.dir=@ --set 'data.train=[" + write_tokens() +
      "]' --set train.steps=1 --set train.global_batch=1 --set parallel.data=1 --set launch.device=cpu --set "
      "log.tensorboard=false --set checkpoint.final=true --set run.name=";
  const auto trains = [&](const std::string& options, const std::string& name) {
    const Outcome trained = plait("train " + options + settings + name);
    EXPECT_EQ(trained.status, 0) << trained.errors;
  };
  const auto exported = [&](const std::string& run) {
    fs::remove_all(path("out"));
    const Outcome done = plait("export @/" + run + " --out @/out");
    EXPECT_EQ(done.status, 0) << done.errors;
    for (const char* name : {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json"}) {
      EXPECT_TRUE(fs::exists(path("out/") + name)) << run;
    }
    return nlohmann::json::parse(std::ifstream(path("out/config.json")));
  };
  ASSERT_EQ(plait("import @/hf --out @/base").status, 0);
  trains("--init-from @/base --set data.sequence_length=16", "of-import");
  trains("--init-from @/hf --set data.sequence_length=16", "of-folder");
  trains("--init-from @/of-folder --set data.sequence_length=16", "again");
  trains("--init-from @/hf --set data.sequence_length=64", "longer");
  trains("--init-from @/base --set data.sequence_length=16 --set model.rope_base=5000", "other-base");
  // As runs were that plait began before they kept it: what is still there.
  trains("--init-from @/hf --set data.sequence_length=16", "older");
  fs::remove_all(path("older/huggingface"));
  EXPECT_EQ(exported("older"), given);
  fs::remove_all(path("hf"));
  for (const char* run : {"of-import", "of-folder", "again"}) EXPECT_EQ(exported(run), given) << run;
  nlohmann::json longer = given;
  longer["max_position_embeddings"] = 64;
  EXPECT_EQ(exported("longer"), longer);
  const nlohmann::json other = exported("other-base");
  EXPECT_EQ(other["rope_parameters"]["rope_theta"], 5000);
  EXPECT_EQ(other["max_position_embeddings"], given["max_position_embeddings"]);
  EXPECT_EQ(other["eos_token_id"], given["eos_token_id"]);
}

// Which layers have a window is said in two ways; a model that was not imported is written in the family that has its windows.
TEST_F(Transformers, KeepTheirSlidingWindows) {
  copy("qwen2-window");
  const auto model_of = [&](const std::string& run) { return load_config(path(run + "/config.yaml")).model; };
  const auto imported = [&](const std::string& run) {
    const Outcome done = plait("import @/hf --out @/" + run);
    EXPECT_EQ(done.status, 0) << done.errors;
    return model_of(run);
  };
  using Layers = std::vector<std::int64_t>;
  EXPECT_EQ(imported("a").window, 4);
  EXPECT_EQ(model_of("a").window_layers, (Layers{1, 2}));
  change("layer_types", nullptr);
  EXPECT_EQ(imported("b").window_layers, (Layers{1, 2}));  // by max_window_layers
  change("max_window_layers", nullptr);
  EXPECT_TRUE(imported("c").window.is_auto());  // 28 is usual
  change("layer_types", {"sliding_attention", "full_attention", "sliding_attention"});
  EXPECT_EQ(imported("d").window_layers, (Layers{0, 2}));
  change("layer_types", {"sliding_attention", "sliding_attention", "sliding_attention"});
  EXPECT_EQ(imported("e").window_layers, Layers{});
  EXPECT_EQ(model_of("e").window, 4);
  change("layer_types", {"sliding_attention", "full_attention"});
  EXPECT_THAT(refused("import @/hf --out @/f"), HasSubstr("must have as many as num_hidden_layers=3"));
  change("layer_types", {"sliding_attention", "chunked_attention", "full_attention"});
  EXPECT_THAT(refused("import @/hf --out @/f"), HasSubstr("must be sliding_attention or full_attention"));
  change("layer_types", 7);
  EXPECT_THAT(refused("import @/hf --out @/f"), HasSubstr("layer_types=7: must be a list"));
  change("use_sliding_window", false);
  EXPECT_TRUE(imported("g").window.is_auto());
  fs::remove_all(path("hf"));
  copy("mistral-window");
  EXPECT_EQ(imported("h").window, 5);
  EXPECT_EQ(model_of("h").window_layers, Layers{});
  change("layer_types", {"sliding_attention", "full_attention"});
  EXPECT_THAT(refused("import @/hf --out @/i"), HasSubstr("must all be sliding_attention"));
}

TEST_F(Transformers, AreWrittenInTheFamilyThatHasTheirWindows) {
  const auto exported = [&](const std::string& changes) {
    write("c.yaml",
          "run: {name: run, dir: " + folder.path() + "}\n" +
              "model: {layers: 3, hidden: 16, heads: 2, ffn: 24, vocab: 61, norm: rms_norm, mlp: swiglu, position: rope, "
              "bias: false, window: 5, " +
              changes +
              "}\n"
              "launch: {device: cpu}\n"
              "data: {train: [" +
              write_tokens() +
              "], tokenizer: tokens, sequence_length: 16}\n"
              "parallel: {data: 1}\n"
              "train: {steps: 1, global_batch: 1, micro_batch: 1}\n");
    fs::remove_all(path("run")), fs::remove_all(path("out"));
    EXPECT_EQ(plait("train @/c.yaml").status, 0);
    return plait("export @/run --out @/out");
  };
  const auto config = [&] { return nlohmann::json::parse(std::ifstream(path("out/config.json"))); };
  ASSERT_EQ(exported("qkv_bias: false").status, 0);
  EXPECT_EQ(config()["model_type"], "mistral");
  EXPECT_EQ(config()["architectures"][0], "MistralForCausalLM");
  EXPECT_EQ(config()["sliding_window"], 5);
  ASSERT_EQ(exported("qkv_bias: true, window_layers: [0, 2]").status, 0);
  EXPECT_EQ(config()["model_type"], "qwen2");
  ASSERT_EQ(plait("import @/out --out @/again").status, 0);
  EXPECT_EQ(load_config(path("again/config.yaml")).model.window_layers, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(load_config(path("again/config.yaml")).model.window, 5);
  EXPECT_THAT(exported("qkv_bias: false, window_layers: [0, 2]").errors, HasSubstr("model.window_layers=0, 2"));
}

// transformers refuses a llama of which they do not.
TEST_F(Transformers, WhoseHeadsDoNotDivideTheWidthAreWrittenAsMistral) {
  const auto exported = [&](const std::string& biases) {
    write("c.yaml",
          "run: {name: run, dir: " + folder.path() + "}\n" +
              "model: {layers: 2, hidden: 16, heads: 3, head_dim: 8, ffn: 24, vocab: 61, norm: rms_norm, mlp: swiglu, "
              "position: rope, " +
              biases + "}\nlaunch: {device: cpu}\ndata: {train: [" + write_tokens() +
              "], tokenizer: tokens, sequence_length: 16}\nparallel: {data: 1}\n"
              "train: {steps: 1, global_batch: 1, micro_batch: 1}\n");
    fs::remove_all(path("run")), fs::remove_all(path("out"));
    EXPECT_EQ(plait("train @/c.yaml").status, 0);
    return plait("export @/run --out @/out");
  };
  ASSERT_EQ(exported("bias: false, qkv_bias: false").status, 0);
  const nlohmann::json config = nlohmann::json::parse(std::ifstream(path("out/config.json")));
  EXPECT_EQ(config["model_type"], "mistral");
  EXPECT_TRUE(config.at("sliding_window").is_null());
  ASSERT_EQ(plait("import @/out --out @/again").status, 0);
  EXPECT_TRUE(load_config(path("again/config.yaml")).model.window.is_auto());
  EXPECT_EQ(load_config(path("again/config.yaml")).model.head_dim, 8);
  EXPECT_THAT(exported("bias: true, qkv_bias: true").errors,
              HasSubstr("model.heads=3: has no form in transformers that plait writes: llama's must divide model.hidden=16"));
}

// As transformers reads it.
TEST_F(Transformers, OfOneFileDoNotMindAnIndexThatIsLeftBesideIt) {
  copy("llama");
  fs::copy(fixtures / "mistral/model.safetensors.index.json", path("hf/model.safetensors.index.json"));
  ASSERT_EQ(plait("import @/hf --out @/run").status, 0);
  ASSERT_EQ(plait("export @/run --out @/out").status, 0);
  EXPECT_EQ(tensors_of(path("out")), tensors_of(fixtures / "llama"));
}

TEST_F(Transformers, TrustNoFile) {
  copy("mistral");
  const fs::path index = path("hf/model.safetensors.index.json");
  const nlohmann::json good = nlohmann::json::parse(std::ifstream(index));
  const auto refusal = [&](const nlohmann::json& json) {
    std::ofstream(index) << json;
    const std::string words = refused("import @/hf --out @/run");
    EXPECT_FALSE(fs::exists(path("run")));
    return words;
  };
  nlohmann::json bad = good;
  bad["weight_map"]["model.norm.weight"] = "../other.safetensors";
  EXPECT_THAT(refusal(bad), HasSubstr("'model.norm.weight' is not in a file of this directory"));
  bad = good, bad["weight_map"].erase("model.norm.weight");
  EXPECT_THAT(refusal(bad), HasSubstr("lacks 'model.norm.weight'"));
  bad = good, bad["weight_map"]["more"] = good["weight_map"]["model.norm.weight"];
  EXPECT_THAT(refusal(bad), HasSubstr("'more' is not in model-"));
  EXPECT_THAT(refusal(nlohmann::json::array()), HasSubstr("weight_map"));
  std::ofstream(index) << good;
  const std::string file = path("hf/" + good["weight_map"]["model.norm.weight"].get<std::string>());
  fs::resize_file(file, fs::file_size(file) - 8);
  EXPECT_THAT(refused("import @/hf --out @/run"), HasSubstr("not a valid safetensors file"));
  fs::create_directory(path("run"));
  EXPECT_THAT(refused("import " + (fixtures / "gpt2").string() + " --out @/run"), HasSubstr("exists already"));
  EXPECT_THAT(refused("import @/nothing --out @/new"), HasSubstr("nothing/config.json"));
}

TEST_F(Transformers, SayWhatIsWrongWithDirectories) {
  copy("llama");
  ASSERT_EQ(plait("import @/hf --out @/run").status, 0);
  EXPECT_THAT(refused("import @/run --out @/new"), HasSubstr("run: is of plait already, not of transformers"));
  EXPECT_THAT(refused("import @/hf --out ''"), HasSubstr("--out: must be the name of a new directory"));
  EXPECT_THAT(refused("export @/run --out ''"), HasSubstr("--out: must be the name of a new directory"));
  fs::remove(path("hf/model.safetensors"));
  fs::create_symlink("../blobs/0123", path("hf/model.safetensors"));
  EXPECT_THAT(refused("import @/hf --out @/new"),
              HasSubstr("hf/model.safetensors: is a link that leads nowhere: ../blobs/0123 is not there"));
}

}  // namespace
}  // namespace plait::app
