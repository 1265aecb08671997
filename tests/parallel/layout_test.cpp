// Any mix of tensor, pipeline and data parallelism computes what one rank would.
#include <gtest/gtest.h>

#include <cmath>

#include "parallel/rank_threads.h"

namespace plait::parallel {
namespace {

struct Case {
  bool llama = false;
  int pipeline = 1, data = 1, tensor = 1;
  std::string schedule = "1f1b";
  int virtual_stages = 1, zero = 0;
  bool sequence_parallel = true, overlap = true;
  std::string recompute = "none";

  int ranks() const { return pipeline * data * tensor; }
  std::string name() const {
    std::string text = (llama ? "llama_p" : "gpt_p") + std::to_string(pipeline) + "_d" + std::to_string(data) + "_t" + std::to_string(tensor) +
                       "_" + schedule + "_v" + std::to_string(virtual_stages) + "_zero" + std::to_string(zero) + "_" + recompute;
    if (!sequence_parallel) text += "_nosp";
    if (!overlap) text += "_nooverlap";
    for (char& c : text) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    return text;
  }
};

Config config_of(const Case& c) {
  Config config;
  config.model.layers = 6, config.model.hidden = 32, config.model.heads = 4, config.model.vocab = 150, config.model.ffn = 64;
  if (c.llama) {
    config.model.kv_heads = 4, config.model.norm = "rms_norm", config.model.mlp = "swiglu", config.model.position = "rope";
    config.model.bias = false, config.model.tie_embeddings = false;
  }
  config.data.sequence_length = 16;
  config.train.steps = 3, config.train.global_batch = 8, config.train.micro_batch = 1, config.train.clip = 0.5;
  config.comm.bucket_mb = 0.02;
  config.comm.overlap = c.overlap;
  config.parallel.pipeline = c.pipeline, config.parallel.data = c.data, config.parallel.tensor = c.tensor;
  config.parallel.schedule = c.schedule, config.parallel.virtual_stages = c.virtual_stages, config.parallel.zero = c.zero;
  config.parallel.sequence_parallel = c.sequence_parallel, config.parallel.recompute = c.recompute;
  return config;
}

const JobResult& serial(bool llama) {
  static const JobResult results[] = {run_job(config_of({.llama = false}), 1, DeviceKind::host),
                                      run_job(config_of({.llama = true}), 1, DeviceKind::host)};
  return results[llama ? 1 : 0];
}

class Layouts : public testing::TestWithParam<Case> {};

TEST_P(Layouts, GiveTheSerialRunsLossesAndParameters) {
  const Case& c = GetParam();
  const JobResult& one = serial(c.llama);
  const JobResult many = run_job(config_of(c), c.ranks(), DeviceKind::host);
  ASSERT_EQ(many.losses.size(), one.losses.size());
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * std::abs(one.losses[i]));
    EXPECT_NEAR(many.grad_norms[i], one.grad_norms[i], 1e-4 * one.grad_norms[i]);
  }
  EXPECT_LT(largest_difference(many, one), 2e-5);
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const bool llama : {false, true}) {
    for (const bool sp : {true, false}) {
      list.push_back({.llama = llama, .tensor = 2, .sequence_parallel = sp});
      list.push_back({.llama = llama, .tensor = 4, .sequence_parallel = sp});
    }
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
      const int v = schedule == std::string("interleaved") ? 2 : 1;
      list.push_back({.llama = llama, .pipeline = 2, .schedule = schedule, .virtual_stages = v});
      list.push_back({.llama = llama, .pipeline = 4, .schedule = schedule, .virtual_stages = v});
      list.push_back({.llama = llama, .pipeline = 2, .schedule = schedule, .virtual_stages = v, .recompute = "full"});
      list.push_back({.llama = llama, .pipeline = 2, .schedule = schedule, .virtual_stages = v, .overlap = false});
      list.push_back({.llama = llama, .pipeline = 2, .data = 2, .tensor = 2, .schedule = schedule, .virtual_stages = v, .zero = 1});
    }
    list.push_back({.llama = llama, .data = 2, .tensor = 2, .zero = 2, .recompute = "selective"});
    list.push_back({.llama = llama, .data = 4, .zero = 2});
    list.push_back({.llama = llama, .pipeline = 2, .data = 2, .tensor = 2, .zero = 2});
    list.push_back({.llama = llama, .pipeline = 2, .data = 2, .schedule = "interleaved", .virtual_stages = 2, .zero = 2});
    list.push_back({.llama = llama, .pipeline = 2, .data = 4, .schedule = "gpipe", .zero = 2, .overlap = false});
    list.push_back({.llama = llama, .pipeline = 8, .schedule = "1f1b"});
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Cpu, Layouts, testing::ValuesIn(cases()), [](const auto& layout) { return layout.param.name(); });

}  // namespace
}  // namespace plait::parallel
