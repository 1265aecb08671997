// The configuration space of a PCI device, as the kernel shows it, and the capabilities that it lists.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "topology/sysfs.h"

namespace plait::topology {

class PciConfig {
 public:
  // Nothing where the kernel shows no capabilities: without privileges it shows the first 64 bytes only.
  static std::optional<PciConfig> read(const Sysfs& sysfs, const std::string& bus_id);

  // Where the capabilities of this kind are, in the order of the list. Standard ones are in the first 256 bytes, extended ones
  // behind them, which devices that are not PCI Express (or that a hypervisor shows as such) do not have. A list that goes in
  // circles ends.
  std::vector<std::size_t> capabilities(unsigned id) const;
  std::optional<std::size_t> extended_capability(unsigned id) const;

  unsigned byte(std::size_t at) const;  // 0 behind the end
  unsigned word(std::size_t at) const { return byte(at) | byte(at + 1) << 8; }

 private:
  explicit PciConfig(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
};

}  // namespace plait::topology
