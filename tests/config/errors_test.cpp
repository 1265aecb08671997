// What a user sees when a configuration is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "config/config.h"
#include "core/error.h"

namespace plait {
namespace {

using testing::HasSubstr;

std::vector<ConfigProblem> problems_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(yaml, overrides, "test.yaml");
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

constexpr const char* valid = R"(model: {layers: 2, hidden: 64, heads: 16}
data: {train: [text/**]}
train: {steps: 10, global_batch: 8, micro_batch: 2}
)";

TEST(ConfigErrors, TheBaseOfTheseTestsIsValid) { EXPECT_TRUE(problems_of(valid).empty()); }

TEST(ConfigErrors, TheNameOfARunIsThatOfOneFolder) {
  for (const std::string name : {"''", ".", "..", "/", "a/b", "../x", "a/", "\"a\\0b\""}) {
    const auto problems = problems_of(valid, {"run.name=" + name});
    ASSERT_EQ(problems.size(), 1u) << name;
    EXPECT_EQ(problems[0].path, "run.name") << name;
    EXPECT_THAT(problems[0].rule, HasSubstr("must be one folder's name (run.dir says where it is)")) << name;
  }
  EXPECT_EQ(problems_of(valid, {"run.name=" + std::string(256, 'x')}).size(), 1u);
  for (const std::string name : {"'...'", "..a", ".hidden", "a b", "a\\b"})
    EXPECT_TRUE(problems_of(valid, {"run.name=" + name}).empty()) << name;
}

struct Case {
  std::vector<std::string> overrides;
  std::string path, value, rule, nearest;
};

void PrintTo(const Case& c, std::ostream* out) { *out << testing::PrintToString(c.overrides); }

class ConfigOverrideErrors : public testing::TestWithParam<Case> {};

TEST_P(ConfigOverrideErrors, NamePathValueAndRule) {
  const auto problems = problems_of(valid, GetParam().overrides);
  ASSERT_FALSE(problems.empty());
  std::string all;
  for (const ConfigProblem& p : problems) {
    all += p.path + " | " + p.value + " | " + p.rule + " | " + p.nearest + "\n";
    if (p.path == GetParam().path && p.value == GetParam().value && p.rule.find(GetParam().rule) != std::string::npos &&
        p.nearest == GetParam().nearest) {
      return;
    }
  }
  FAIL() << "got\n" << all;
}

INSTANTIATE_TEST_SUITE_P(
    Unknown, ConfigOverrideErrors,
    testing::Values(Case{{"train.stepz=3"}, "train.stepz", "3", "unknown key", "train.steps"},
                    Case{{"train.lr=1"}, "train.lr", "1", "unknown key", "train.optimizer.lr"},
                    Case{{"optimiser={lr: 1}"}, "optimiser", "", "unknown key", "train.optimizer"},
                    Case{{"trian={steps: 1}"}, "trian", "", "unknown key", "train"},
                    Case{
                        {"model.preset=gpt2-125m"}, "model.preset", "gpt2-125m", "must be one of tiny, gpt2-124m", "gpt2-124m"},
                    Case{{"zzzzzzzzzzzzzzzzzz=1"}, "zzzzzzzzzzzzzzzzzz", "1", "unknown key", ""}));

INSTANTIATE_TEST_SUITE_P(
    Type, ConfigOverrideErrors,
    testing::Values(Case{{"train.steps=ten"}, "train.steps", "ten", "wrong type: must be integer", ""},
                    Case{{"train.steps=1.5"}, "train.steps", "1.5", "wrong type: must be integer", ""},
                    Case{{"train.steps=99999999999999999999"}, "train.steps", "99999999999999999999", "wrong type", ""},
                    Case{{"train.steps='5'"}, "train.steps", "5", "wrong type", ""},
                    Case{{"train.steps=[1, 2]"}, "train.steps", "[...]", "wrong type", ""},
                    Case{{"train.steps={a: 1}"}, "train.steps", "{...}", "wrong type", ""},
                    Case{{"train.steps="}, "train.steps", "", "has no value: must be 1 to 10^12", ""},
                    Case{{"run.seed=-1"}, "run.seed", "-1", "wrong type", ""},
                    Case{{"run.name=~"}, "run.name", "", "has no value", ""},
                    Case{{"run.name=[a]"}, "run.name", "[...]", "wrong type: must be string", ""},
                    Case{{"run.name=[]"}, "run.name", "[]", "wrong type: must be string", ""},
                    Case{{"run.name={}"}, "run.name", "{}", "wrong type: must be string", ""},
                    Case{{"train.clip=.inf"}, "train.clip", ".inf", "wrong type: must be number", ""},
                    Case{{"train.clip=nan"}, "train.clip", "nan", "wrong type: must be number", ""},
                    Case{{"train.clip=auto"}, "train.clip", "auto", "wrong type", ""},
                    Case{{"comm.overlap=2"}, "comm.overlap", "2", "wrong type: must be true or false", ""},
                    Case{{"data.train={a: b}"}, "data.train", "{...}", "wrong type: must be list of strings", ""},
                    Case{{"log.trace_steps=[1, x]"}, "log.trace_steps", "[...]", "wrong type: must be list of integers", ""},
                    Case{{"train=5"}, "train", "5", "must be a map of keys", ""},
                    Case{{"train.steps"}, "--set", "train.steps", "must be path=value", ""},
                    Case{{"train.steps=[1"}, "train.steps", "[1", "is not valid YAML", ""},
                    Case{{"data.train=[*.txt]"}, "data.train", "[*.txt]", "quote a value that begins with *", ""}));

INSTANTIATE_TEST_SUITE_P(
    Rule, ConfigOverrideErrors,
    testing::Values(
        Case{{"train.steps=0"}, "train.steps", "0", "must be 1 to 10^12", ""},
        Case{{"train.optimizer.lr=0"}, "train.optimizer.lr", "0", "must be 1e-30 to 1e30", ""},
        Case{{"train.optimizer.beta1=1"}, "train.optimizer.beta1", "1", "at least 0 and less than 1", ""},
        Case{{"train.optimizer.beta2=0.99999999"}, "train.optimizer.beta2", "0.99999999", "less than 1, also in 32 bits", ""},
        Case{{"train.optimizer.min_lr_fraction=1.1"}, "train.optimizer.min_lr_fraction", "1.1", "between 0 and 1", ""},
        Case{{"train.optimizer.schedule=cosin"},
             "train.optimizer.schedule",
             "cosin",
             "must be one of constant, cosine",
             "cosine"},
        Case{{"parallel.data=-1"}, "parallel.data", "-1", "must be auto or 1 to 65536", ""},
        Case{{"data.train=['']"}, "data.train", "[...]", "none of them empty", ""},
        Case{{"log.trace_steps=[0]"}, "log.trace_steps", "[...]", "each 1 to 10^12", ""},
        Case{{"bounds.bubble=0.05"}, "bounds.bubble", "0.05", "must be none, or a percentage from 0% to 100%", ""},
        Case{{"bounds.exposed_dp=101%"}, "bounds.exposed_dp", "101%", "must be none, or a percentage from 0% to 100%", ""},
        Case{{"run.name=''"}, "run.name", "", "must be one folder's name", ""}));

INSTANTIATE_TEST_SUITE_P(
    NotSupportedYet, ConfigOverrideErrors,
    testing::Values(Case{{"parallel.zero=3"},
                         "parallel.zero",
                         "3",
                         "must be auto or 0 to 2: sharding parameters (ZeRO-3) is not supported yet",
                         ""},
                    Case{{"parallel.zero=-1"}, "parallel.zero", "-1", "must be auto or 0 to 2", ""},
                    Case{{"parallel.tensor=0"}, "parallel.tensor", "0", "must be auto or 1 to 65536", ""},
                    Case{{"model.kv_heads=0"}, "model.kv_heads", "0", "must be auto or 1 to 4096", ""},
                    Case{{"comm.bucket_mb=-0.0"}, "comm.bucket_mb", "-0.0", "must be auto or", ""},
                    Case{{"study.budget.minutes=0"}, "study.budget.minutes", "0", "must be auto or", ""},
                    Case{{"parallel.zero=-2"}, "parallel.zero", "-2", "must be auto or 0 to 2 (sharding parameters", ""}));

INSTANTIATE_TEST_SUITE_P(
    LayoutRule, ConfigOverrideErrors,
    testing::Values(
        Case{{"parallel.tensor=3"}, "parallel.tensor", "3", "must divide model.heads=16", ""},
        Case{{"comm.mover=sm_write", "launch.device=cpu"}, "comm.mover", "sm_write", "kernels need GPUs", ""},
        Case{{"comm.p2p=relay", "launch.device=cpu"}, "comm.p2p", "relay", "needs GPUs: must be auto, direct, host", ""},
        Case{{"comm.p2p_pairs=[0-1=host, 1-2=vmm]", "launch.device=cpu", "launch.mode=processes"},
             "comm.p2p_pairs",
             "[...]",
             "1-2=vmm needs GPUs",
             ""},
        Case{{"parallel.schedule=interleaved", "parallel.virtual_stages=2", "parallel.pipeline=2", "parallel.data=1",
              "train.global_batch=7", "train.micro_batch=1"},
             "parallel.schedule",
             "interleaved",
             "takes a multiple of parallel.pipeline=2 micro-batches, not 7",
             ""},
        Case{{"comm.p2p_pairs=[0-1=host, 1-0=nccl]"}, "comm.p2p_pairs", "[...]", "each pair once", ""},
        Case{{"comm.p2p_pairs=0-0=host"}, "comm.p2p_pairs", "0-0=host", "a list of pairs as 0-1=host", ""},
        Case{{"comm.p2p_pairs=0-1=auto"}, "comm.p2p_pairs", "0-1=auto", "a list of pairs as 0-1=host", ""},
        Case{{"comm.peer_access=off", "comm.p2p=ipc", "launch.mode=processes"},
             "comm.peer_access",
             "off",
             "comm.p2p=ipc needs peer access: must be auto",
             ""},
        Case{{"comm.peer_access=off", "comm.p2p_pairs=[0-1=host, 1-2=direct]"},
             "comm.peer_access",
             "off",
             "comm.p2p_pairs: 1-2=direct needs peer access",
             ""},
        Case{{"comm.peer_access=off", "comm.require=p2p"}, "comm.peer_access", "off", "which comm.require=p2p asks for", ""},
        Case{{"launch.ranks_per_device=2", "launch.mode=processes"},
             "launch.ranks_per_device",
             "2",
             "must be 1 with launch.mode=processes",
             ""},
        Case{{"launch.ranks_per_device=auto", "comm.exchanges=library"},
             "launch.ranks_per_device",
             "auto",
             "must be 1 with comm.exchanges=library",
             ""},
        Case{
            {"launch.ranks_per_device=2", "comm.p2p=host"}, "launch.ranks_per_device", "2", "must be 1 with comm.p2p=host", ""},
        Case{{"launch.ranks_per_device=0"}, "launch.ranks_per_device", "0", "must be auto or 1 to 1024", ""},
        Case{{"comm.require=nvlink"}, "comm.require", "nvlink", "must be one of none, p2p, rdma", ""},
        Case{{"train.graph=on", "parallel.pipeline=2"}, "train.graph", "on", "cannot be on with parallel.pipeline=2", ""},
        Case{{"train.graph=on", "parallel.tensor=2", "comm.exchanges=links"},
             "train.graph",
             "on",
             "cannot be on with comm.exchanges=links",
             ""},
        Case{{"train.graph=on", "parallel.data=2", "comm.reductions=links"},
             "train.graph",
             "on",
             "cannot be on with comm.reductions=links",
             ""},
        Case{{"comm.reductions=links", "comm.p2p=nccl"},
             "comm.reductions",
             "links",
             "needs another comm.p2p, or comm.reductions=library",
             ""},
        Case{{"comm.reductions=nccl"}, "comm.reductions", "nccl", "must be one of auto, links, library", ""},
        Case{{"comm.exchanges=links", "comm.p2p=nccl"},
             "comm.exchanges",
             "links",
             "needs another comm.p2p, or comm.exchanges=library",
             ""},
        Case{{"comm.braid=halves", "parallel.tensor=2", "parallel.pipeline=2", "train.micro_batch=1"},
             "comm.braid",
             "halves",
             "train.micro_batch=1: take an even one, or comm.braid=passes",
             ""},
        Case{{"comm.braid=true"}, "comm.braid", "true", "must be one of auto, none, passes, ahead, halves", ""},
        Case{{"comm.braid=ahead", "parallel.tensor=2", "parallel.pipeline=2"},
             "comm.braid",
             "ahead",
             "parallel.pipeline=2, whose ranks begin with several forwards as it is: take comm.braid=passes",
             ""},
        Case{{"comm.p2p=vmm", "launch.mode=threads"}, "comm.p2p", "vmm", "needs ranks that are processes", ""},
        Case{{"comm.p2p=direct", "launch.mode=processes"}, "comm.p2p", "direct", "needs ranks that are threads", ""},
        Case{{"comm.p2p_pairs=[0-1=host, 0-2=vmm]", "launch.mode=threads"},
             "comm.p2p_pairs",
             "[...]",
             "0-2=vmm needs ranks that are processes",
             ""},
        Case{{"comm.p2p_pairs=[0-1=direct]", "launch.mode=processes"},
             "comm.p2p_pairs",
             "[...]",
             "0-1=direct needs ranks that are threads",
             ""},
        Case{{"parallel.tensor=4", "model.kv_heads=2"}, "parallel.tensor", "4", "must divide model.kv_heads=2", ""},
        Case{{"parallel.tensor=2", "model.ffn=65"}, "parallel.tensor", "2", "must divide model.ffn=65", ""},
        Case{{"parallel.tensor=16", "data.sequence_length=17", "train.micro_batch=1", "train.global_batch=16"},
             "parallel.tensor",
             "16",
             "must divide the tokens of a micro-batch",
             ""},
        Case{{"parallel.pipeline=100"}, "parallel.pipeline", "100", "must be at most", ""},
        Case{{"parallel.schedule=1f1c"}, "parallel.schedule", "1f1c", "must be one of auto, gpipe, 1f1b, ", "1f1b"},
        Case{{"placement.strategy=explicit"}, "placement.devices", "[]", "is required with placement.strategy=explicit", ""},
        Case{{"placement.devices=[1,0]"}, "placement.devices", "[...]", "must be empty unless placement.strategy=explicit", ""},
        Case{{"placement.strategy=explicit", "placement.devices=[1,1]"}, "placement.devices", "[...]", "each once", ""},
        Case{{"parallel.virtual_stages=2"}, "parallel.virtual_stages", "2", "must be 1 with parallel.schedule=1f1b", ""},
        Case{{"parallel.virtual_stages=3", "parallel.schedule=zb-v"},
             "parallel.virtual_stages",
             "3",
             "must be 2 with parallel.schedule=zb-v",
             ""},
        Case{{"parallel.pipeline=2", "parallel.stages=[1]"},
             "parallel.stages",
             "[...]",
             "must have 2 numbers, one per stage, not 1",
             ""},
        Case{
            {"parallel.pipeline=2", "parallel.stages=[1, 99]"}, "parallel.stages", "[...]", "must add up to model.layers=", ""},
        Case{{"parallel.pipeline=2", "parallel.zero=2", "parallel.schedule=zb-h1"},
             "parallel.zero",
             "2",
             "ZeRO-2 works with gpipe, 1f1b",
             ""}));

INSTANTIATE_TEST_SUITE_P(
    CrossRule, ConfigOverrideErrors,
    testing::Values(
        Case{{"model.hidden=65"}, "model.heads", "16", "must divide model.hidden=65 unless model.head_dim is given", ""},
        Case{{"model.kv_heads=3"}, "model.kv_heads", "3", "must divide model.heads=16", ""},
        Case{{"model.position=rope", "model.head_dim=3"}, "model.position", "rope", "a multiple of 2, not 3", ""},
        Case{{"precision.compute=bf16"}, "model.head_dim", "auto", "must be a multiple of 8 for bf16, not 4", ""},
        Case{{"data.tokenizer=random"}, "model.vocab", "auto", "must be given: data.tokenizer=random", ""},
        Case{{"model.vocab=200"}, "model.vocab", "200", "at least the tokenizer's vocabulary, 256", ""},
        Case{{"model.window_layers=[0]"}, "model.window_layers", "[...]", "needs model.window", ""},
        Case{{"model.window=8", "model.window_layers=[1,1]"}, "model.window_layers", "[...]", "must be ascending", ""},
        Case{{"model.window=8", "model.window_layers=[0,4096]"}, "model.window_layers", "[...]", "must be below", ""},
        Case{{"model.max_sequence=128"}, "data.sequence_length", "256", "at most model.max_sequence=128", ""},
        Case{{"data.train=[]"}, "data.train", "[]", "is required", ""},
        Case{{"data.tokenizer=sentencepiece"}, "data.sentencepiece.vocab", "auto", "is required, to train a model", ""},
        Case{{"data.tokenizer={sentencepiece: {vocab: 100, model: a}}"}, "data.sentencepiece.vocab", "100", "not both", ""},
        Case{{"data.sentencepiece.vocab=100"}, "data.tokenizer", "bytes", "must be sentencepiece", ""},
        Case{{"data.chat_template=custom"}, "data.custom_template.assistant_end", "\"\"", "never learns to end its turn", ""},
        Case{{"data.custom_template.user_prefix=U"}, "data.chat_template", "none", "must be custom", ""},
        Case{{"data.chat_template=chatlm"}, "data.chat_template", "chatlm", "must be one of none, chatml", "chatml"},
        Case{{"data.document_token.id=0"}, "data.document_token.id", "0", "must be -1 with data.tokenizer=bytes", ""},
        Case{{"data.jsonl.text_key=''"}, "data.jsonl.text_key", "", "must be not empty", ""},
        Case{{"train.optimizer.warmup=11"}, "train.optimizer.warmup", "11", "must be at most train.steps=10", ""},
        Case{{"train.optimizer.warmup=4", "train.optimizer.decay_steps=7"},
             "train.optimizer.decay_steps",
             "7",
             "must be at most train.steps=10 less train.optimizer.warmup=4",
             ""},
        Case{{"train.micro_batch=3"}, "train.global_batch", "8", "must be a multiple of train.micro_batch=3", ""},
        Case{{"parallel.data=3"}, "train.global_batch", "8", "times the data-parallel size 3", ""},
        Case{{"launch.ranks=8"}, "train.global_batch", "8", "times the data-parallel size 8", ""},
        Case{{"parallel.tensor=3"}, "parallel.tensor", "3", "must divide model.heads=16", ""},
        Case{{"parallel.tensor=4", "model.kv_heads=2"}, "parallel.tensor", "4", "must divide model.kv_heads=2", ""},
        Case{{"launch.ranks=4", "parallel.data=2"},
             "launch.ranks",
             "4",
             "must be parallel.data * parallel.tensor * parallel.pipeline, 2 * 1 * 1",
             ""},
        Case{{"launch.mode=external"}, "launch.rendezvous", "\"\"", "is required with launch.mode=external", ""},
        Case{{"launch.rendezvous=/tmp/x", "launch.mode=threads"},
             "launch.rendezvous",
             "/tmp/x",
             "launch.mode=external or auto only",
             ""},
        Case{{"launch.mode=external", "launch.rendezvous=tcp://node-1"},
             "launch.rendezvous",
             "tcp://node-1",
             "tcp://HOST:PORT",
             ""},
        Case{{"launch.mode=external", "launch.rendezvous=/tmp/x", "launch.token_file=t"},
             "launch.token_file",
             "t",
             "launch.rendezvous=tcp only",
             ""},
        Case{{"run.name=" + std::string(300, 'x')},
             "run.name",
             std::string(57, 'x') + "...",
             "not empty, not . or .., without /, at most 255 bytes",
             ""},
        Case{{"comm.p2p=ipc"}, "comm.p2p", "ipc", "needs ranks that are processes, not launch.mode=auto", ""},
        Case{{"comm.backend=nccl", "launch.device=cpu"}, "comm.backend", "nccl", "must be auto or gloo", ""},
        Case{{"comm.backend=gloo", "launch.device=cuda"}, "comm.backend", "gloo", "must be auto or nccl", ""},
        Case{{"precision.compute=fp64"}, "precision.compute", "fp64", "fp64 runs on CPUs only", ""},
        Case{
            {"precision.matmul=bf16", "precision.compute=fp32"}, "precision.matmul", "bf16", "need precision.compute=bf16", ""},
        Case{{"precision.matmul=fp8", "precision.compute=fp32", "launch.device=cuda"},
             "precision.matmul",
             "fp8",
             "FP8 products on GPUs need precision.compute=bf16",
             ""},
        Case{{"precision.moments=bf16", "precision.compute=fp64", "launch.device=cpu"},
             "precision.moments",
             "bf16",
             "must be fp32 with precision.compute=fp64",
             ""},
        Case{{"precision.gradients=bf16", "precision.compute=fp32"},
             "precision.gradients",
             "bf16",
             "need precision.compute=bf16",
             ""},
        Case{{"precision.gradients=bf16", "launch.device=cpu"},
             "precision.gradients",
             "bf16",
             "need precision.compute=bf16",
             ""},
        Case{{"precision.matmul=bf16", "launch.device=cpu"}, "precision.matmul", "bf16", "need precision.compute=bf16", ""}));

TEST(ConfigErrors, LinesAreTheFiles) {
  const auto problems = problems_of(
      "model: {preset: tiny}\ndata:\n  train: [a]\ntrain:\n  steps: 0\n  global_batch: 8\n  micro_batch: 3\n  typo: 1\n");
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].path, "train.typo");
  EXPECT_EQ(problems[0].line, 8);
  EXPECT_EQ(problems[1].path, "train.steps");
  EXPECT_EQ(problems[1].line, 5);
  EXPECT_EQ(problems[2].path, "train.global_batch");
  EXPECT_EQ(problems[2].line, 6);
}

TEST(ConfigErrors, TheMessageListsAllOfThem) {
  try {
    parse_config("model: {preset: tiny}\ndata: {train: [a]}\ntrain:\n  stepz: 5\n  global_batch: -1\n");
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_THAT(text, HasSubstr("4 problems"));
    EXPECT_THAT(text, HasSubstr("train.stepz=5 (line 4): unknown key; did you mean 'train.steps'?"));
    EXPECT_THAT(text, HasSubstr("train.global_batch=-1 (line 5): must be 1 to 16777216"));
    EXPECT_THAT(text, HasSubstr("train.steps: is required: 1 to 10^12"));
    EXPECT_THAT(text, HasSubstr("train.micro_batch: is required"));
  }
}

TEST(ConfigErrors, AShapeIsRequiredWithoutAPreset) {
  const auto problems = problems_of("data: {train: [a]}\ntrain: {steps: 1, global_batch: 1, micro_batch: 1}\n");
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].path, "model.layers");
  EXPECT_THAT(problems[0].rule, HasSubstr("is required without model.preset"));
}

TEST(ConfigErrors, DuplicateKeys) {
  auto problems = problems_of(std::string(valid) + "train: {steps: 3}\n");
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].rule, "duplicate key");
  EXPECT_EQ(problems[0].line, 4);
  problems = problems_of(
      "model: {preset: tiny}\ndata: {train: [a], tokenizer: {sentencepiece: {vocab: 99}}, sentencepiece: {vocab: 98}}\n"
      "train: {steps: 1, global_batch: 1, micro_batch: 1}\n");
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].rule, HasSubstr("duplicate key: line 2 gives data.sentencepiece.vocab too"));
}

TEST(ConfigErrors, AMissingFileIsNamed) {
  try {
    load_config("/nonexistent/plait.yaml");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/plait.yaml: No such file"));
  }
  EXPECT_THROW(load_config(testing::TempDir()), ConfigError) << "a directory";
}

TEST(ConfigErrors, MalformedTextIsOneClearProblem) {
  struct Malformed {
    std::string yaml, rule;
  };
  const Malformed cases[] = {
      {"", "is empty"},
      {"# only a comment\n", "is empty"},
      {"~", "is empty"},
      {"hello", "must be a map of sections"},
      {"- a\n- b\n", "must be a map of sections"},
      {"train: [1", "is not valid YAML"},
      {"train: {steps: 1", "is not valid YAML"},
      {"a: 1\n b: 2\n", "is not valid YAML"},
      {"a:\n\tb: 1\n", "is not valid YAML"},
      {"a: *missing\n", "quote a value that begins with * or &"},
      {"a: !<", "is not valid YAML"},
      {"\"unterminated", "is not valid YAML"},
      {"---\na: 1\n---\nb: 2\n", "must be a single YAML document"},
      {"run: {name: \xff\xfe}", "is not UTF-8 text: byte 0xff at offset 12"},
      {"run: {name: \xed\xa0\x80}", "is not UTF-8 text"},
      {"run: {name: \xc0\x80}", "is not UTF-8 text"},
      {"run: {name: \xe2\x82", "is not UTF-8 text"},
      {std::string("a: 1\0b", 6), "is not UTF-8 text: byte 0x00"},
      {"\xff\xfe" + std::string("r\0u\0n\0", 6), "is not UTF-8 text: byte 0xff at offset 0"},
      {", a: 1\n", "a ',', ']' or '}' that nothing has opened"},
      {"a: {b: 1}}\n", "is not valid YAML"},
      {"]", "is not valid YAML"},
      {std::string(100000, '['), "is not valid YAML"},
      {std::string(100000, '{'), "is not valid YAML"},
  };
  for (const Malformed& malformed : cases) {
    const auto problems = problems_of(malformed.yaml);
    ASSERT_EQ(problems.size(), 1u) << malformed.yaml.substr(0, 40);
    EXPECT_EQ(problems[0].path, "test.yaml");
    EXPECT_THAT(problems[0].rule, HasSubstr(malformed.rule)) << malformed.yaml.substr(0, 40);
  }
}

TEST(ConfigErrors, AnOverrideThatEndsWhatNothingOpenedIsRefused) {
  for (const char* const text : {"train.steps=,", "train.steps=[1]}", "train={steps: 1}]"}) {
    const auto problems = problems_of(valid, {text});
    ASSERT_FALSE(problems.empty()) << text;
    EXPECT_THAT(problems[0].rule, HasSubstr("is not valid YAML")) << text;
  }
}

// Whatever is wrong, the answer is a ConfigError: no crash, no other exception, no hang.
TEST(ConfigErrors, OddButWellFormedYamlIsRefused) {
  std::string deep = "train: ";
  for (int i = 0; i < 200; ++i) deep += "{a: ";
  deep += "1" + std::string(200, '}');
  std::string laughs = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 60; ++i)
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + ", *a" +
              std::to_string(i - 1) + "]\n";
  const std::string cases[] = {
      "model: &m {self: *m}\n",
      "data: {train: &t [*t]}\n",
      "run: &r {name: *r}\n",
      "? [1, 2]\n: 3\n",
      "? {a: b}\n: 3\n",
      "<<: {a: 1}\n",
      "train: 5\n",
      "train: [steps, 5]\n",
      "1: 2\n",
      "'': 1\n",
      "train: {'': 1}\n",
      "train.steps: 5\n",
      "train: {optimizer: {optimizer: {lr: 1}}}\n",
      "data: {tokenizer: {bytes: 1}}\n",
      "data: {tokenizer: {sentencepiece: 7}}\n",
      "data: {tokenizer: []}\n",
      "run: {seed: !!binary abcd}\n",
      "model: {heads: 0, hidden: 0, layers: 0, kv_heads: -9223372036854775808, head_dim: -1}\n",
      "model: {heads: 9223372036854775807, hidden: 9223372036854775807, layers: 9223372036854775807}\n",
      "train: {global_batch: 9223372036854775807, micro_batch: 9223372036854775807}\nparallel: {data: 9223372036854775807, "
      "tensor: 9223372036854775807}\n",
      "parallel: {tensor: 0, pipeline: 0, data: 0}\nlaunch: {ranks: 5}\n",
      std::string(5000, 'k') + ": 1\n",
      deep,
      laughs,
  };
  for (const std::string& yaml : cases) EXPECT_FALSE(problems_of(yaml).empty()) << yaml.substr(0, 60);
}

TEST(ConfigErrors, EveryTruncationAndByteFlipOfAValidFileParsesOrIsAConfigError) {
  const std::string text = to_yaml(parse_config(valid));
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
    EXPECT_NO_THROW(problems_of(text.substr(0, i))) << i;
    EXPECT_NO_THROW(problems_of(flipped)) << i;
  }
}

}  // namespace
}  // namespace plait
