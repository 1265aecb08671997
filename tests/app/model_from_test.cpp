// model.from and --init-from with models of transformers: the same runs as of what was imported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/file.h"
#include "program_test.h"
#include "test_paths.h"

namespace plait::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ModelFrom : public ProgramTest {
 protected:
  ModelFrom() {
    write("c.yaml", "run: {dir: " + folder.path() + "}\ndata: {train: [" + fixture("tokens.u16.bin") +
                        "], sequence_length: 16}\n"
                        "train: {steps: 2, global_batch: 4, micro_batch: 2, optimizer: {schedule: constant, lr: 1e-3}}\n"
                        "launch: {device: cpu}\nlog: {tensorboard: false, every: 1}\ncheckpoint: {final: false}\n");
  }
  static std::string fixture(const std::string& name) {
    return (fs::path(test_paths::source) / "tests/app/transformers" / name).string();
  }
  // Loss and gradient norm of every step, as they are written.
  std::vector<std::string> steps_of(const std::string& run) const {
    std::vector<std::string> steps;
    std::ifstream metrics(path(run + "/metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
      const nlohmann::json step = nlohmann::json::parse(line);
      steps.push_back(step.at("loss").dump() + " " + step.at("grad_norm").dump());
    }
    return steps;
  }
  std::string text_of(const std::string& file) const { return read_text(path(file), 1 << 20); }
};

class ModelFromFamilies : public ModelFrom, public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Families, ModelFromFamilies, testing::Values("gpt2", "llama", "llama-f16", "mistral", "qwen2"),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(ModelFromFamilies, TrainsAsWhatWasImportedDoes) {
  const std::string model = fixture(GetParam());
  ASSERT_EQ(plait("import " + model + " --out @/imported").status, 0);
  const bool splits_keys = std::string(GetParam()) != "mistral";  // it has one
  for (const std::string layout : {"", splits_keys ? "tensor: 2, pipeline: 2" : "pipeline: 2"}) {
    const std::string name = layout.empty() ? "serial" : "split";
    const std::string set = " --set 'parallel={" + layout + (layout.empty() ? "data: 1" : "") + "}' --set run.name=";
    const Outcome ours = plait("train @/c.yaml --set model.from=" + model + set + name);
    ASSERT_EQ(ours.status, 0) << ours.errors;
    const Outcome known = plait("train --init-from @/imported --set run.dir=@ --set data.train=" + fixture("tokens.u16.bin") +
                                " --set data.sequence_length=16 --set 'train={steps: 2, global_batch: 4, micro_batch: 2, "
                                "optimizer: {schedule: constant, lr: 1e-3}}' --set launch.device=cpu --set 'log={tensorboard: "
                                "false, every: 1}' --set checkpoint.final=false" +
                                set + name + "-known");
    ASSERT_EQ(known.status, 0) << known.errors;
    EXPECT_EQ(steps_of(name).size(), 2u);
    EXPECT_EQ(steps_of(name), steps_of(name + "-known")) << layout;
    EXPECT_THAT(text_of(name + "/config.yaml"),
                AllOf(HasSubstr("layers: 2"), HasSubstr("vocab: 61"), Not(HasSubstr(" from:"))));
    const nlohmann::json origin = nlohmann::json::parse(text_of(name + "/init_from.json"));
    EXPECT_EQ(origin.at("checkpoint"), fs::canonical(model).string());
    EXPECT_EQ(origin.at("lineage"), nlohmann::json::array());
  }
}

TEST_F(ModelFrom, StandsForShapeTokenizerAndWeightsAndIsNotNeededAgain) {
  // A model with a tokenizer, of plait's own making.
  const std::string tokenizer = (fs::path(test_paths::source) / "tests/data/huggingface/gpt2.json").string();
  write("text", std::string(3000, 'a') + "the quick brown fox");
  const std::string text = " --set data.train=@/text --set train.steps=4 --set run.name=";
  const Outcome first = plait(
      "train @/c.yaml --set 'model={layers: 2, hidden: 16, heads: 2, max_sequence: 16}' --set "
      "'data.tokenizer={file: " +
      tokenizer + "}' --set checkpoint.final=true" + text + "first");
  ASSERT_EQ(first.status, 0) << first.errors;
  ASSERT_EQ(plait("export @/first --out @/hf").status, 0);

  const std::string from = "train @/c.yaml --set model.from=@/hf" + text;
  ASSERT_EQ(plait(from + "whole").status, 0);
  EXPECT_THAT(text_of("whole/config.yaml"), AllOf(HasSubstr("tokenizer: huggingface"), HasSubstr(path("hf/tokenizer.json"))));
  const Outcome halved = plait(from + "halved --set checkpoint.every=2 --set train.steps=2");
  ASSERT_EQ(halved.status, 0) << halved.errors;
  // The weights of a run that is named too win, and the seed where nothing is.
  EXPECT_EQ(plait(from + "other --init-from @/whole").status, 2) << "it has no checkpoint";
  ASSERT_EQ(plait(from + "forked --init-from @/halved").status, 0);
  ASSERT_EQ(plait(from + "drawn --set 'train.init_from.path=\"\"'").status, 0);
  EXPECT_FALSE(fs::exists(path("drawn/init_from.json")));
  EXPECT_NE(steps_of("drawn").front(), steps_of("whole").front());

  // Without a configuration, and by other commands.
  ASSERT_EQ(plait("train --init-from @/hf --set run.dir=@ --set 'train={global_batch: 4, micro_batch: 2, optimizer: {schedule: "
                  "constant, lr: 1e-3}}' --set data.sequence_length=16 --set launch.device=cpu --set log.every=1" +
                  text + "plain")
                .status,
            0);
  EXPECT_EQ(steps_of("plain"), steps_of("whole"));
  const Outcome sampled = plait("sample @/hf --cpu --prompt the --tokens 5"),
                same = plait("sample @/first --cpu --prompt the --tokens 5");
  EXPECT_EQ(sampled.status, 0) << sampled.errors;
  EXPECT_EQ(sampled.output, same.output);
  // As many sequences at once, since BLAS libraries may round products of more rows otherwise.
  EXPECT_THAT(refused("eval @/hf --data @/text --set launch.device=cpu --set data.tokenizer=bytes"),
              HasSubstr("data.tokenizer=bytes: must be {file: "));
  const std::string evaluated =
      " --data @/text --json --set launch.device=cpu --set data.sequence_length=16 --set train.global_batch=4 --set "
      "train.micro_batch=2";
  EXPECT_EQ(json("eval @/hf" + evaluated).at("loss"), json("eval @/first" + evaluated).at("loss"));
  for (const char* command : {"plan @/c.yaml", "data batches @/c.yaml --steps 1 --out @/batches",
                              "bench step --steps 1 --warmup 1 --config @/c.yaml"}) {
    const Outcome done = plait(std::string(command) + " --set model.from=@/hf --set data.train=@/text");
    EXPECT_EQ(done.status, 0) << command << done.errors;
  }
  const Outcome verified = plait(
      "verify @/c.yaml --layout 'tensor=2 pipeline=2' --set verify.steps=1 --set model.from=@/hf --set data.train=@/text");
  EXPECT_EQ(verified.status, 0) << verified.errors << verified.output;

  fs::remove_all(path("hf"));
  const Outcome resumed = plait("train --resume @/halved --set train.steps=4");
  ASSERT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_EQ(steps_of("halved"), steps_of("whole"));
  EXPECT_THAT(resumed.output + resumed.errors, Not(HasSubstr("no prediction"))) << "which needs the tokenizer";
}

TEST_F(ModelFrom, RanksAsProcessesReadTheirShares) {
  const std::string from =
      "train @/c.yaml --set model.from=" + fixture("gpt2") + " --set 'parallel={tensor: 2, pipeline: 2}' --set ";
  ASSERT_EQ(plait(from + "run.name=threads").status, 0);
  const Outcome done = plait(from + "run.name=processes --set launch.mode=processes");
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(steps_of("processes"), steps_of("threads"));
}

TEST_F(ModelFrom, RefusesWhatDiffersAndWhatThereIsNot) {
  const std::string model = fixture("llama"), from = "train @/c.yaml --set model.from=" + model;
  EXPECT_THAT(refused(from + " --set model.layers=7 --set model.norm_epsilon=1e-3"),
              AllOf(HasSubstr("model.layers=7: must be 2, as of " + model + "/config.json, which model.from names"),
                    HasSubstr("model.norm_epsilon=1e-3: must be ")));
  EXPECT_THAT(refused(from + " --set model.preset=tiny"), HasSubstr("model.preset=tiny: must be left out with model.from"));
  EXPECT_THAT(refused(from + " --with-optimizer"),
              AllOf(HasSubstr("train.init_from.optimizer=true: must be false"), HasSubstr("holds weights and no moments")));
  EXPECT_THAT(refused("train @/c.yaml --with-optimizer --set 'model={layers: 1, hidden: 16, heads: 2, vocab: 61}' --set "
                      "data.tokenizer=tokens --init-from " +
                      model),
              AllOf(HasSubstr("model.layers=1: must be 2"), HasSubstr("model.norm=layer_norm: must be rms_norm")));
  EXPECT_THAT(refused(from + " --set precision.compute=fp64"), HasSubstr("precision.compute=fp64: must not be fp64"));
  EXPECT_THAT(refused("train @/c.yaml --set model.from=@/none"),
              AllOf(HasSubstr("none/config.json"), Not(HasSubstr("model.layers"))));
  EXPECT_THAT(refused("export " + model + " --out @/out"), HasSubstr("is a model of transformers already"));
  // Who gives text hears why there is no tokenizer for it.
  write("text.txt", "some text, and a little more of it");
  const std::string why = "llama was not taken over: there is none that plait knows";
  EXPECT_THAT(refused("sample " + model + " --cpu --prompt hi"), AllOf(HasSubstr("cannot encode text"), HasSubstr(why)));
  for (const std::string& command :
       {"eval " + model + " --set launch.device=cpu --set data.sequence_length=16 --data @/text.txt",
        from + " --set data.train=@/text.txt"})
    EXPECT_THAT(refused(command), AllOf(HasSubstr("text.txt: is not a token shard"), HasSubstr(why)));
  EXPECT_FALSE(fs::exists(path("run")));
  // Files that hold another model than config.json says, or end early.
  fs::copy(model, path("hf"));
  const std::string file = path("hf/model.safetensors");
  fs::copy_file(fixture("qwen2") + "/model.safetensors", file, fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused("train @/c.yaml --set model.from=@/hf"), HasSubstr("is no tensor of a llama of this shape"));
  fs::resize_file(file, fs::file_size(file) - 4);
  EXPECT_THAT(refused("train @/c.yaml --init-from @/hf --set model.from=" + model),
              AllOf(HasSubstr("hf/model.safetensors"), HasSubstr("not a valid safetensors file")));
  EXPECT_FALSE(fs::exists(path("run")));
}

}  // namespace
}  // namespace plait::app
