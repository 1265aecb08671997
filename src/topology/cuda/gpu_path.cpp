#include "topology/gpu_path.h"

#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <mutex>

#include "core/cuda_check.h"
#include "core/device.h"
#include "core/error.h"
#include "topology/nvml.h"

namespace plait::topology {
namespace {

bool can_access(int from, int to) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, from, to));
  return can != 0;
}

int peer_attribute(cudaDeviceP2PAttr attribute, int from, int to) {
  int value = 0;
  check(cudaDeviceGetP2PAttribute(&value, attribute, from, to));
  return value;
}

// The GPU's ordinal in this process, or -1 if it does not see the GPU.
int ordinal_of(const std::string& bus_id) {
  int ordinal = -1;
  if (cudaDeviceGetByPCIBusId(&ordinal, bus_id.c_str()) == cudaSuccess) return ordinal;
  static_cast<void>(cudaGetLastError());
  return -1;
}

struct Lanes {
  int count = 0;
  bool to_switch = false;
};

// Asked once: NVLinks do not change, and ranks that are threads ask about each pair at the same time. On four H200s one of
// twelve such answers was occasionally "none"; such an answer is not kept.
std::vector<NvLink> nvlinks_of(const Nvml& nvml, const std::string& bus_id) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<NvLink>> known;
  std::lock_guard lock(mutex);
  std::vector<NvLink>& links = known[bus_id];
  if (links.empty()) links = nvml.nvlinks(bus_id);
  return links;
}

Lanes lanes_between(const Nvml& nvml, const std::string& from, const std::string& to) {
  const auto at_switches = [](const std::vector<NvLink>& links) {
    int count = 0;
    for (const NvLink& link : links) count += link.end == NvLinkEnd::nvswitch;
    return count;
  };
  const std::vector<NvLink> links = nvlinks_of(nvml, from);
  Lanes lanes;
  for (const NvLink& link : links) lanes.count += link.end == NvLinkEnd::gpu && link.bus_id == to;
  if (lanes.count > 0 || at_switches(nvlinks_of(nvml, to)) == 0) return lanes;
  lanes.count = at_switches(links);
  lanes.to_switch = lanes.count > 0;
  return lanes;
}

// Kept open: opening NVML takes longer than all questions about a pair.
const Nvml& opened_nvml() {
  static const Nvml nvml;
  return nvml;
}

}  // namespace

std::string fabric_clique_of_gpu(const std::string& bus_id) { return opened_nvml().fabric_clique(bus_id); }

std::string bus_id_of_gpu(int ordinal) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), text.size(), ordinal));
  const auto bus_id = bus_id_from(text.data());
  if (!bus_id) throw DeviceError("CUDA's GPU " + std::to_string(ordinal) + " has no PCI address but '" + text.data() + "'");
  return *bus_id;
}

std::vector<std::string> cuda_gpus() {
  std::vector<std::string> gpus;
  const int count = cuda_device_count();
  for (int ordinal = 0; ordinal < count; ++ordinal) gpus.push_back(bus_id_of_gpu(ordinal));
  return gpus;
}

PathFacts gpu_path(int ordinal, const std::string& from, const std::string& to) {
  PathFacts facts;
  const int here = ordinal;
  const int there = ordinal_of(to);
  facts.visible = there >= 0;
  facts.same_memory = from == to;
  const Nvml& nvml = opened_nvml();
  if (facts.same_memory) {
    facts.peer_access = facts.native_atomics = true;
  } else {
    const auto obstacle = nvml.peer_obstacle(from, to);
    facts.peer_access = facts.visible ? can_access(here, there) : obstacle == "";
    if (!facts.peer_access) facts.why_no_access = obstacle.value_or("");
    if (facts.visible) {
      facts.native_atomics = peer_attribute(cudaDevP2PAttrNativeAtomicSupported, here, there) != 0;
      facts.performance_rank = peer_attribute(cudaDevP2PAttrPerformanceRank, here, there);
    }
    facts.pcie_path = nvml.pcie_path(from, to).value_or("");
    const Lanes lanes = lanes_between(nvml, from, to);
    facts.nvlinks = lanes.count;
    facts.nvswitch = lanes.to_switch;
  }
  const int count = cuda_device_count();
  for (int bridge = 0; bridge < count; ++bridge) {
    const bool between =
        bridge != here && bridge != there && can_access(here, bridge) && (there < 0 || can_access(there, bridge));
    if (!between) continue;
    const std::string bus_id = bus_id_of_gpu(bridge);
    facts.bridges.push_back(
        {bus_id, lanes_between(nvml, from, bus_id).count, peer_attribute(cudaDevP2PAttrPerformanceRank, here, bridge)});
  }
  return facts;
}

}  // namespace plait::topology
