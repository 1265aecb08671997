#include "train/report/environment.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>

#include "comm/communicator.h"
#include "comm/nccl_environment.h"
#include "core/device.h"
#include "core/record.h"
#include "core/utf8.h"
#include "ops/libraries.h"
#include "topology/nvml.h"

namespace plait {

void declare(auto& field, Of<BuildVersion> auto& build) {
  field("version", build.version);
  field("commit", build.commit);
}

}  // namespace plait

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
      if (library.name == name) return library.version();
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

void declare(auto& field, Of<GpuEnvironment> auto& gpu) {
  field("name", gpu.name);
  field("memory_bytes", gpu.memory_bytes, record::at_least(0));
}

void declare(auto& field, Of<Environment> auto& e) {
  field("plait", e.plait);
  field("host", e.host);
  field("cpu", e.cpu);
  field("processors", e.processors, record::whole(0, 1 << 20));
  field("memory_bytes", e.memory_bytes, record::at_least(0));
  field("driver", e.driver);
  field("cuda", e.cuda);
  field("cudnn", e.cudnn);
  field("nccl", e.nccl);
  field("gpus", e.gpus, record::at_most(most_gpus));
  field("variables", e.variables, record::at_most(most_variables));
}

Json to_json(const Environment& e) { return record_json(e); }

Environment environment_from(const Json& json, const std::string& source) {
  const JsonSource document{.name = source};
  return record_from<Environment>(JsonField(json, document));
}

}  // namespace plait::train
