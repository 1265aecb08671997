// Reading, writing, presets and documentation of the configuration. config_errors_test.cpp has the messages.
#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "core/config_error.h"
#include "core/error.h"
#include "core/error_of.h"
#include "test_paths.h"

namespace plait {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* minimal = R"(
model: {preset: tiny}
data: {train: [text/**]}
train: {steps: 10, global_batch: 8, micro_batch: 2}
)";

TEST(Config, FillsDefaultsFromTheStructs) {
  const Config config = parse_config(minimal);
  const Config defaults;
  EXPECT_EQ(config.run.seed, defaults.run.seed);
  EXPECT_EQ(config.train.optimizer.lr, defaults.train.optimizer.lr);
  EXPECT_EQ(config.data.tokenizer, "bytes");
  EXPECT_TRUE(config.model.vocab.is_auto()) << "the tokenizer's";
  EXPECT_EQ(config.train.steps, 10);
}

TEST(Config, ReadsEveryTypeAndTheShortForms) {
  const Config config = parse_config(R"(
run: {name: "a: b", seed: 18446744073709551615}
model: {layers: 2, hidden: 64, heads: 4, kv_heads: 2, norm_epsilon: 1e-6, bias: off}
data: {train: text/**, tokenizer: {sentencepiece: {vocab: 8192}}}
train:
  steps: 10
  global_batch: 8
  micro_batch: 2
  optimizer: {lr: 6e-4, warmup: 3, schedule: wsd}
parallel: {data: auto}
launch: {ranks: auto}
log: {trace_steps: [3, 4]}
checkpoint:
)");
  EXPECT_EQ(config.run.name, "a: b");
  EXPECT_EQ(config.run.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_FALSE(config.model.bias);
  EXPECT_EQ(config.data.train, std::vector<std::string>{"text/**"});
  EXPECT_EQ(config.data.tokenizer, "sentencepiece");
  EXPECT_EQ(config.data.sentencepiece.vocab, 8192);
  EXPECT_EQ(config.train.optimizer.lr, 6e-4);
  EXPECT_EQ(config.train.optimizer.warmup, 3);
  EXPECT_TRUE(config.parallel.size[Axis::data].is_auto());
  EXPECT_TRUE(config.launch.ranks.is_auto());
  EXPECT_EQ(config.log.trace_steps, (std::vector<std::int64_t>{3, 4}));
}

TEST(Config, OverridesReplaceTheFile) {
  const Config config =
      parse_config(minimal, {"train.steps=7", "train.optimizer={lr: 1e-3, warmup: 2}", "data.train=[a.txt, \"*.md\"]",
                             "parallel.data=2", "parallel.data=4", "run.name=x=y"});
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.train.optimizer.lr, 1e-3);
  EXPECT_EQ(config.train.optimizer.warmup, 2);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.txt", "*.md"}));
  EXPECT_EQ(config.parallel.size[Axis::data], 4) << "the last one wins";
  EXPECT_EQ(config.run.name, "x=y");
}

TEST(Config, OverridingTheTokenizerDropsTheFilesSentencePiece) {
  const std::string text = std::string(minimal) + "log: {every: 1}\n";
  const Config trained = parse_config(text, {"data.tokenizer.sentencepiece.vocab=100"});
  EXPECT_EQ(trained.data.tokenizer, "sentencepiece");
  EXPECT_EQ(trained.data.sentencepiece.vocab, 100);
  const Config bytes = parse_config(to_yaml(trained), {"data.tokenizer=bytes"});
  EXPECT_EQ(bytes.data.tokenizer, "bytes");
  EXPECT_TRUE(bytes.data.sentencepiece.vocab.is_auto());
}

TEST(Config, AnchorsAreResolved) {
  const Config config =
      parse_config("model: {preset: tiny}\ndata: {train: [a]}\ntrain: {steps: &n 8, global_batch: *n, micro_batch: 2}\n");
  EXPECT_EQ(config.train.global_batch, 8);
}

TEST(Config, RoundTripIsExact) {
  Config config = parse_config(minimal);
  config.run.name = "quote \" back\\slash \n tab\t \x01 # colon: é";
  config.run.dir = "null";
  config.data.train = {"*.txt", "a b", "true", "12", "- x"};
  config.train.optimizer.lr = 0.1 + 0.2;
  config.train.optimizer.epsilon = 1.0000000000000003e-30;
  config.train.clip = 9.999999999999999e29;
  config.model.norm_epsilon = 1e-5;
  config.log.trace_steps = {5, 6};
  config.bounds.exposed_p2p = "0.5%";
  config.run.seed = std::numeric_limits<std::uint64_t>::max();
  const std::string text = to_yaml(config);
  const Config again = parse_config(text);
  EXPECT_EQ(to_yaml(again), text);
  EXPECT_EQ(again.run.name, config.run.name);
  EXPECT_EQ(again.run.dir, "null");
  EXPECT_EQ(again.data.train, config.data.train);
  EXPECT_EQ(again.train.optimizer.lr, config.train.optimizer.lr);
  EXPECT_EQ(again.train.optimizer.epsilon, config.train.optimizer.epsilon);
  EXPECT_EQ(again.train.clip, config.train.clip);
  EXPECT_EQ(again.bounds.exposed_p2p, "0.5%");
  EXPECT_EQ(again.run.seed, config.run.seed);
  EXPECT_NE(text.find("norm_epsilon: 1.0e-05\n"), std::string::npos) << "a number to YAML 1.1 readers too";
  EXPECT_NE(text.find("lr: 0.30000000000000004\n"), std::string::npos);
  EXPECT_NE(text.find("data: auto\n"), std::string::npos);
}

TEST(Config, SourcesAreAListOfMaps) {
  const std::string sources = "data.sources=[{files: [\"a/**\", b.txt], weight: 0.7}, {files: c.jsonl}]";
  const Config config = parse_config(minimal, {"data.train=[]", sources});
  const std::vector<DataSourceConfig> expected = {{{"a/**", "b.txt"}, 0.7}, {{"c.jsonl"}, 1}};
  EXPECT_EQ(config.data.sources, expected);
  EXPECT_EQ(config.data.training_sources(), expected);
  EXPECT_EQ(config.data.training_files(), (std::vector<std::string>{"a/**", "b.txt", "c.jsonl"}));
  EXPECT_EQ(parse_config(to_yaml(config)).data.sources, expected) << to_yaml(config);
  EXPECT_EQ(parse_config(minimal).data.training_sources().size(), 1u);
  const auto refused = [](std::vector<std::string> set) { return config_error([&] { parse_config(minimal, set); }); };
  EXPECT_THAT(refused({sources}), testing::HasSubstr("data.sources=[...]: is given, and so is data.train"));
  for (const char* bad :
       {"{files: [a]}", "[{files: [a], wieght: 2}]", "[{files: [a], weight: x}]", "[a]", "[{files: [a], files: [b]}]"})
    EXPECT_THAT(refused({"data.train=[]", std::string("data.sources=") + bad}),
                testing::HasSubstr("wrong type: must be list of maps"))
        << bad;
  for (const char* bad : {"[{weight: 1}]", "[{files: [a], weight: 0}]", "[{files: [a], weight: -1}]", "[{files: [\"\"]}]"})
    EXPECT_THAT(refused({"data.train=[]", std::string("data.sources=") + bad}), testing::HasSubstr("must be a list of {files:"))
        << bad;
}

TEST(Config, RanksShareEveryKeyButThoseThatNameSomethingOfAHost) {
  const Config config = parse_config(minimal, {"comm.interface=10.0.0.7"});
  std::map<std::string, std::string> shared;
  for (const ConfigValue& value : shared_values(config)) shared[value.path] = value.value;
  EXPECT_EQ(shared.at("train.global_batch"), "8");
  EXPECT_EQ(shared.at("parallel.data"), "auto");
  const std::string yaml = to_yaml(config);
  const auto keys = std::count_if(yaml.begin(), yaml.end(), [](char c) { return c == '\n'; });
  constexpr int sections = 28;  // sections of sections too: train.optimizer, study.prune, ...
  EXPECT_EQ(static_cast<long>(shared.size()), keys - sections - 5);
  for (const char* own : {"comm.interface", "launch.rendezvous", "launch.token_file", "launch.mode", "launch.bind"})
    EXPECT_FALSE(shared.contains(own)) << own;
}

TEST(Config, EveryPresetRoundTrips) {
  for (const std::string& name : preset_names()) {
    const Config config = parse_config(minimal, {"model.preset=" + name});
    EXPECT_EQ(config.model.preset, name);
    EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config)) << name;
  }
}

// Parameters of the published model, counted from the shape: what each paper or model card states.
std::int64_t parameters(const ModelConfig& m) {
  const std::int64_t kv_heads = m.kv_heads.value_or(m.heads);
  const std::int64_t head_dim = m.head_dim.value_or(m.hidden / m.heads);
  const std::int64_t ffn = m.ffn.value_or(4 * m.hidden);
  const std::int64_t qkv = (m.heads + 2 * kv_heads) * head_dim, attention = m.heads * head_dim;
  const std::int64_t norm = m.norm == NormKind::layer_norm ? 2 * m.hidden : m.hidden;
  const std::int64_t up = m.mlp == Mlp::swiglu ? 2 * ffn : ffn;
  std::int64_t block = 2 * norm + m.hidden * qkv + attention * m.hidden + m.hidden * up + ffn * m.hidden;
  if (m.qkv_bias) block += qkv;
  if (m.qk_norm) block += 2 * head_dim;
  if (m.bias) block += m.hidden + up + m.hidden;
  std::int64_t total = m.layers * block + norm + m.vocab * m.hidden;
  if (!m.tie_embeddings) total += m.vocab * m.hidden;
  if (m.position == Position::learned) total += m.max_sequence * m.hidden;
  return total;
}

TEST(Config, PresetsHaveThePublishedParameterCounts) {
  const auto count = [](const std::string& name) { return parameters(parse_config(minimal, {"model.preset=" + name}).model); };
  EXPECT_EQ(count("gpt2-124m"), 124'439'808);
  EXPECT_EQ(count("gpt2-355m"), 354'823'168);
  EXPECT_EQ(count("gpt2-774m"), 774'030'080);
  EXPECT_EQ(count("gpt2-1558m"), 1'557'611'200);
  EXPECT_EQ(count("llama3-1b"), 1'235'814'400);
  EXPECT_EQ(count("llama3-8b"), 8'030'261'248);
  EXPECT_EQ(count("qwen2.5-0.5b"), 494'032'768);
  EXPECT_EQ(count("qwen2.5-1.5b"), 1'543'714'304);
  EXPECT_EQ(count("qwen3-0.6b"), 596'049'920);
  EXPECT_EQ(count("qwen3-1.7b"), 1'720'574'976);
  EXPECT_EQ(count("qwen3-4b"), 4'022'468'096);
  EXPECT_EQ(count("qwen3-8b"), 8'190'735'360);
  EXPECT_NEAR(static_cast<double>(count("gpt-2.8b")), 2.78e9, 0.01e9);
}

TEST(Config, PresetsCarryTheFamilysConstants) {
  const ModelConfig llama = parse_config(minimal, {"model.preset=llama3-8b"}).model;
  EXPECT_EQ(llama.rope_base, 500000.0);
  EXPECT_EQ(llama.norm_epsilon, 1e-5);
  EXPECT_FALSE(llama.tie_embeddings);
  EXPECT_FALSE(llama.qkv_bias);
  const ModelConfig qwen = parse_config(minimal, {"model.preset=qwen2.5-0.5b"}).model;
  EXPECT_EQ(qwen.rope_base, 1e6);
  EXPECT_EQ(qwen.norm_epsilon, 1e-6);
  EXPECT_TRUE(qwen.qkv_bias);
  EXPECT_FALSE(qwen.bias);
  EXPECT_TRUE(qwen.tie_embeddings);
  const ModelConfig qwen3 = parse_config(minimal, {"model.preset=qwen3-8b"}).model;
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_FALSE(qwen3.tie_embeddings);
}

TEST(Config, AGivenKeyWinsOverThePreset) {
  const ModelConfig model =
      parse_config(minimal, {"model.preset=gpt2-124m", "model.layers=2", "model.tie_embeddings=false", "model.vocab=auto"})
          .model;
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.hidden, 768);
  EXPECT_FALSE(model.tie_embeddings);
  EXPECT_TRUE(model.vocab.is_auto());
}

// What a directory says, without one.
ModelDirectory some_model(const std::string& directory) {
  ModelDirectory found;
  found.file = directory + "/config.json";
  found.model.layers = 3, found.model.hidden = 12, found.model.heads = 4, found.model.kv_heads = 2, found.model.head_dim = 6;
  found.model.ffn = 20, found.model.vocab = 300;
  found.model.norm = NormKind::rms_norm, found.model.norm_epsilon = 1e-6, found.model.mlp = Mlp::swiglu;
  found.model.position = Position::rope, found.model.bias = false, found.model.rope_scaling.factor = 8;
  found.tokenizer = "huggingface", found.huggingface.file = directory + "/tokenizer.json";
  return found;
}

TEST(Config, AModelDirectoryFillsTheKeysThatItStandsFor) {
  const std::string text = "model: {from: some/dir}\ndata: {train: [a]}\ntrain: {steps: 1, global_batch: 1, micro_batch: 1}\n";
  const auto read = [&](const std::vector<std::string>& overrides) { return parse_config(text, overrides, "c", some_model); };
  const Config config = read({});
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.model.head_dim, 6);
  EXPECT_EQ(config.model.norm, NormKind::rms_norm);
  EXPECT_EQ(config.model.norm_epsilon, 1e-6);
  EXPECT_FALSE(config.model.bias);
  EXPECT_EQ(config.model.rope_scaling.factor, 8);
  EXPECT_EQ(config.data.tokenizer, "huggingface");
  EXPECT_EQ(config.data.huggingface.file, "some/dir/tokenizer.json");
  EXPECT_EQ(config.train.init_from.path, "some/dir");
  const std::string yaml = to_yaml(config);
  EXPECT_EQ(yaml.find(" from:"), std::string::npos) << yaml;
  EXPECT_EQ(to_yaml(parse_config(yaml)), yaml) << "without the directory";

  EXPECT_EQ(read({"data.tokenizer=bytes"}).data.tokenizer, "bytes");
  EXPECT_EQ(read({"data.tokenizer=bytes"}).data.huggingface.file, "");
  EXPECT_EQ(read({"data.tokenizer={file: b.json}"}).data.huggingface.file, "b.json");
  EXPECT_EQ(read({"train.init_from.path=runs/a"}).train.init_from.path, "runs/a");
  EXPECT_EQ(read({R"(train.init_from.path="")"}).train.init_from.path, "") << "from the seed";
  EXPECT_EQ(read({"model.kv_heads=auto", "model.layers=3", "model.norm_epsilon=0.000001"}).model.kv_heads, 2);
  EXPECT_EQ(read({"model.from=other"}).train.init_from.path, "other");
}

TEST(Config, WhatAModelDirectoryStandsForIsNotGivenAnotherValue) {
  const std::string text =
      "model: {from: some/dir, kv_heads: 4,\n  rope_scaling: {factor: 2}}\n"
      "data: {train: [a]}\ntrain: {steps: 1, global_batch: 1, micro_batch: 1}\n";
  const auto refused = [&](const std::vector<std::string>& overrides, const ModelDirectoryReader& reader) {
    return error_of<ConfigError>([&] { parse_config(text, overrides, "c", reader); });
  };
  const std::string words = refused({}, some_model);
  EXPECT_THAT(words, HasSubstr("2 problems"));
  EXPECT_THAT(words, HasSubstr("model.kv_heads=4 (line 1): must be 2, as of some/dir/config.json, which model.from names"));
  EXPECT_THAT(words, HasSubstr("model.rope_scaling.factor=2 (line 2): must be 8"));
  EXPECT_THAT(refused({"model.preset=tiny"}, some_model), HasSubstr("model.preset=tiny: must be left out with model.from"));
  EXPECT_THAT(refused({}, nullptr), HasSubstr("model.from=some/dir (line 1): is for configurations of users"));
  const auto broken = [](const std::string&) -> ModelDirectory {
    throw ConfigError({{"d/config.json: x", "1", "is odd", "", 0}});
  };
  EXPECT_THAT(refused({}, broken), AllOf(HasSubstr("1 problem "), HasSubstr("d/config.json: x=1: is odd")));
}

TEST(Config, KnowsWhatAutoLeavesToThePlanner) {
  const Config fixed = parse_config(minimal);
  EXPECT_THAT(keys_left_to_planner(fixed), IsEmpty());
  const std::vector<std::string> open = {"train.micro_batch=auto", "parallel.tensor=auto",         "parallel.pipeline=auto",
                                         "parallel.schedule=auto", "parallel.virtual_stages=auto", "parallel.zero=auto",
                                         "parallel.recompute=auto"};
  const Config planned = parse_config(minimal, open);
  EXPECT_THAT(keys_left_to_planner(planned),
              ElementsAre("train.micro_batch", "parallel.tensor", "parallel.pipeline", "parallel.schedule",
                          "parallel.virtual_stages", "parallel.zero", "parallel.recompute"));
  EXPECT_TRUE(parse_config(to_yaml(planned)).parallel.zero.is_auto());
  // What is left open breaks no rule, and one that is not left open still can.
  EXPECT_THAT(problems_of(planned), IsEmpty());
  Config chosen = planned;
  chosen.train.micro_batch = 1, chosen.parallel.size[Axis::tensor] = 1, chosen.parallel.size[Axis::pipeline] = 1000,
  chosen.parallel.virtual_stages = 1;
  chosen.parallel.schedule = ScheduleKind::one_f_one_b, chosen.parallel.zero = 0, chosen.parallel.recompute = Recompute::none;
  const std::vector<ConfigProblem> problems = problems_of(chosen);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems.front().path, "parallel.pipeline");
  EXPECT_EQ(problems.front().value, "1000");
}

TEST(Config, LoadReadsAFile) {
  const std::string path = testing::TempDir() + "plait_config_test.yaml";
  std::ofstream(path) << minimal;
  EXPECT_EQ(load_config(path, {"train.steps=3"}).train.steps, 3);
}

TEST(Config, DocumentationIsTheSchema) {
  const std::string path = std::string(test_paths::source) + "/docs/configuration.md";
  if (std::getenv("PLAIT_UPDATE_DOCS") != nullptr) std::ofstream(path) << configuration_markdown();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), configuration_markdown())
      << "write it again with PLAIT_UPDATE_DOCS=1 test_core --gtest_filter=Config.*";
}

}  // namespace
}  // namespace plait
