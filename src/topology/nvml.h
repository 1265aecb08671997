// NVML's knowledge of how GPUs are connected, including GPUs that CUDA_VISIBLE_DEVICES hides from this process.
//
// The library belongs to the driver and is opened at run time, so plait also starts without one. Facts that NVML does not know,
// or that this driver's version does not offer yet, are nullopt; if all of NVML is missing, why_missing() says why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plait::topology {

enum class NvLinkEnd { gpu, nvswitch, other };

// One NVLink of a GPU that is up.
struct NvLink {
  int lane = 0;
  NvLinkEnd end = NvLinkEnd::other;
  std::string bus_id;  // of the other end; "" if the driver does not tell (switches of a virtual machine's host)
};

// A GPU's NVLink-C2C to the CPU of its module: the links that are up.
struct C2cLinks {
  int links = 0;
  double gb_per_s = 0;  // all together, one direction
};

// A GPU's fixed properties and settings.
struct GpuTraits {
  std::string name;               // "NVIDIA H200"; "" if unknown
  std::int64_t memory_bytes = 0;  // 0: not known
  int cores = 0;                  // CUDA cores; 0: not known
  std::optional<bool> mig;        // true if it is cut into instances
  // 0 (all clocks up) to 15 (idle).
  std::optional<int> performance_state;
};

// A GPU's momentary state.
struct GpuConditions {
  std::optional<double> sm_clock_mhz, power_w, temperature_c;
  std::optional<double> energy_j;             // since the driver was loaded
  std::vector<std::string> throttle_reasons;  // why its clocks are reduced: "sw_power_cap"
};

class Nvml {
 public:
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& why_missing() const { return why_missing_; }  // "" if NVML works
  std::optional<std::string> driver_version() const;               // "580.82.07"
  std::vector<std::string> gpus() const;  // the PCI addresses of all GPUs of the driver, in ascending order

  // GPUs are given by their PCI address; one that NVML does not know has no links, paths and states.
  bool knows(const std::string& bus_id) const;
  std::optional<std::string> name(const std::string& bus_id) const;   // "NVIDIA H200"
  std::optional<std::string> model(const std::string& bus_id) const;  // the compute capability as "sm90"
  GpuTraits traits(const std::string& bus_id) const;
  std::vector<NvLink> nvlinks(const std::string& bus_id) const;
  C2cLinks c2c_links(const std::string& bus_id) const;
  // The part of an NVLink fabric between hosts that the GPU has joined, as "CLUSTER/CLIQUE": GPUs with equal texts reach each
  // other, also between hosts. "": none.
  std::string fabric_clique(const std::string& bus_id) const;
  GpuConditions conditions(const std::string& bus_id) const;
  // The level of the PCIe tree that the way from one to the other reaches, as nvidia-smi names it: PIX (one switch), PXB (more
  // than one switch), PHB (a host bridge), NODE (host bridges of one NUMA node), SYS (between NUMA nodes); "board" on one
  // board.
  std::optional<std::string> pcie_path(const std::string& a, const std::string& b) const;
  // "" if `a` can read and write the memory of `b`, else the reason in words.
  std::optional<std::string> peer_obstacle(const std::string& a, const std::string& b) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  std::string why_missing_;
};

}  // namespace plait::topology
