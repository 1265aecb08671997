#include "train/report/environment.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>

#include "comm/make_communicator.h"
#include "comm/nccl_environment.h"
#include "core/device.h"
#include "core/host_name.h"
#include "core/json_fields.h"
#include "core/utf8.h"
#include "ops/library_versions.h"
#include "topology/nvml.h"

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_gpus = 1024, most_variables = 10'000;
constexpr std::array<std::string_view, 9> telling_prefixes = {"CUDA_", "NCCL_",     "CUDNN_", "CUBLAS_", "NVIDIA_",
                                                              "OMP_",  "OPENBLAS_", "GLOO_",  "UCX_"};

std::vector<std::pair<std::string, std::string>> telling_variables() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    const bool tells = std::ranges::any_of(telling_prefixes, [&](std::string_view prefix) { return text.starts_with(prefix); });
    if (!tells || equals == std::string_view::npos || first_invalid_utf8(text.substr(0, equals))) continue;
    if (comm::is_set_for_nccl(std::string(text.substr(0, equals)))) continue;  // the configuration has it
    const std::string_view value = text.substr(equals + 1);
    found.emplace_back(text.substr(0, equals), first_invalid_utf8(value) ? "(not UTF-8)" : value);  // JSON holds nothing else
  }
  std::ranges::sort(found);
  return found;
}

// The version of a library used by GPU operations; "" in a build without CUDA.
std::string gpu_library_version(std::string_view name) {
  if constexpr (PLAIT_HAS_CUDA) {
    for (const ops::LibraryVersion& library : ops::library_versions(DeviceKind::cuda))
      if (library.name == name) return library.version;
  }
  return "";
}

std::string nccl_version() {
  if constexpr (PLAIT_HAS_CUDA) {
    const std::string name = comm::backend_name(DeviceKind::cuda);  // "NCCL 2.28.3"
    return name.substr(name.rfind(' ') + 1);
  } else {
    return "";
  }
}

}  // namespace

std::string Environment::machine() const {
  std::string text = fmt::format("{} × {}, {:.0f} GiB", processors, cpu, memory_bytes / (1 << 30));
  for (const GpuEnvironment& gpu : gpus) text += fmt::format("; {}, {:.0f} GiB", gpu.name, gpu.memory_bytes / (1 << 30));
  if (!gpus.empty()) text += fmt::format("; driver {}, CUDA {}, cuDNN {}, NCCL {}", driver, cuda, cudnn, nccl);
  return text;
}

Environment environment_here() {
  Environment here{.plait = build_version(),
                   .host = host_name(),
                   .cpu = device_name({DeviceKind::host, 0}),
                   .processors = static_cast<int>(std::thread::hardware_concurrency()),
                   .memory_bytes = static_cast<double>(memory_size({DeviceKind::host, 0})),
                   .driver = topology::Nvml().driver_version().value_or(""),
                   .cuda = gpu_library_version("CUDA"),
                   .cudnn = gpu_library_version("cuDNN"),
                   .nccl = nccl_version(),
                   .gpus = {},
                   .variables = telling_variables()};
  for (int gpu = 0; gpu < cuda_device_count(); ++gpu) {
    const Device device{DeviceKind::cuda, gpu};
    here.gpus.push_back({device_name(device), static_cast<double>(memory_size(device))});
  }
  return here;
}

std::string version_text() {
  const std::string text = "plait " + to_string(build_version());
  const std::string cuda = gpu_library_version("CUDA");
  if (cuda.empty()) return text + ", without CUDA";
  return fmt::format("{}, CUDA {}, cuDNN {}, NCCL {}", text, cuda, gpu_library_version("cuDNN"), nccl_version());
}

Json to_json(const Environment& e) {
  Json json{{"plait", {{"version", e.plait.version}, {"commit", e.plait.commit}}},
            {"host", e.host},
            {"cpu", e.cpu},
            {"processors", e.processors},
            {"memory_bytes", e.memory_bytes},
            {"driver", e.driver},
            {"cuda", e.cuda},
            {"cudnn", e.cudnn},
            {"nccl", e.nccl},
            {"gpus", Json::array()},
            {"variables", Json::object()}};
  for (const GpuEnvironment& gpu : e.gpus) json["gpus"].push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}});
  for (const auto& [name, value] : e.variables) json["variables"][name] = value;
  return json;
}

Environment environment_from(const Json& json, const std::string& source) {
  const JsonFields fields(json, source);
  const JsonFields plait = fields.object("plait");
  Environment e{.plait = {plait.text("version"), plait.text("commit")},
                .host = fields.text("host"),
                .cpu = fields.text("cpu"),
                .processors = static_cast<int>(fields.integer("processors", 0, 1 << 20)),
                .memory_bytes = fields.not_negative("memory_bytes"),
                .driver = fields.text("driver"),
                .cuda = fields.text("cuda"),
                .cudnn = fields.text("cudnn"),
                .nccl = fields.text("nccl"),
                .gpus = {},
                .variables = {}};
  fields.each("gpus", most_gpus,
              [&](const JsonFields& gpu) { e.gpus.push_back({gpu.text("name"), gpu.not_negative("memory_bytes")}); });
  fields.each_text("variables", most_variables,
                   [&](const std::string& name, const std::string& value) { e.variables.emplace_back(name, value); });
  return e;
}

}  // namespace plait::train
