// The environment of a run or a study: environment.json of its directory.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/version.h"

namespace plait::train {

struct GpuEnvironment {
  std::string name;  // "NVIDIA H200"
  double memory_bytes = 0;
};

struct Environment {
  BuildVersion plait;
  std::string host;
  std::string cpu;  // the model's name
  int processors = 0;
  double memory_bytes = 0;
  std::string driver, cuda, cudnn, nccl;  // as loaded: "580.82.07", "13.0", "9.14.0", "2.28.3"; "" if absent
  std::vector<GpuEnvironment> gpus;       // visible to this process, in its order
  // Variables of the process's environment that may change measurements: NCCL_*, CUDA_*, OMP_*, OPENBLAS_*, GLOO_*, ...
  std::vector<std::pair<std::string, std::string>> variables;

  // The machine as far as speed depends on it: processor, GPUs, driver and libraries, but not the host's name. Equal texts mean
  // equal machines.
  std::string machine() const;
};

// The environment of this process. Makes no CUDA context.
Environment environment_here();

// "plait 0.1.0 (commit 1a2b3c4d5e6f), CUDA 13.0, cuDNN 9.14.0, NCCL 2.28.3": of this process.
std::string version_text();

// {"plait": {"version", "commit"}, "host", "cpu", "processors", "memory_bytes", "driver", "cuda", "cudnn", "nccl", "gpus":
// [{"name", "memory_bytes"}], "variables": {...}}
nlohmann::ordered_json to_json(const Environment& environment);
// ConfigError naming `source` for anything else.
Environment environment_from(const nlohmann::ordered_json& json, const std::string& source);

}  // namespace plait::train
