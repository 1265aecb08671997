// The configuration space of a PCI device, from the kernel, and the capabilities that it lists.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "topology/sysfs.h"

namespace plait::topology {

class PciConfig {
 public:
  // nullopt if the kernel shows no capabilities: without privileges it shows only the first 64 bytes.
  static std::optional<PciConfig> read(const Sysfs& sysfs, const std::string& bus_id);

  // The offsets of the capabilities of this kind, in the order of the list. Standard ones are in the first 256 bytes. Extended
  // ones follow; devices that are not PCI Express (or not shown as such by a hypervisor) have none. A circular list ends.
  std::vector<std::size_t> capabilities(unsigned id) const;
  std::optional<std::size_t> extended_capability(unsigned id) const;

  unsigned byte(std::size_t at) const;  // 0 past the end
  unsigned word(std::size_t at) const { return byte(at) | byte(at + 1) << 8; }

 private:
  explicit PciConfig(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
};

}  // namespace plait::topology
