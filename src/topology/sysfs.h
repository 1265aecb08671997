// Reads the kernel's view of PCI devices, processors and their memory from sysfs. plait does not use hwloc, because hwloc gives
// the speed at which a link runs at the moment (Gen1's for an idle GPU) instead of the speed it supports, and nothing about
// ACS, IOMMU groups and InfiniBand ports.
//
// Everything takes the folder that stands for "/", so that tests can use a tree of their own. Anything missing, unreadable or
// senseless is nullopt, never an error: containers and virtual machines leave much out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace plait::topology {

// The first line, without white space at its end.
std::optional<std::string> read_line(const std::filesystem::path& file);
std::optional<std::int64_t> read_integer(const std::filesystem::path& file);
// Reads at most `most` bytes.
std::optional<std::string> read_bytes(const std::filesystem::path& file, std::size_t most);
std::vector<std::string> names_in(const std::filesystem::path& folder);  // sorted

// A device's position in the PCIe tree.
struct PciPath {
  std::string root;                  // the host bridge: "pci0000:17"
  std::vector<std::string> bridges;  // from the root port down to the one above the device, as PCI addresses
  std::string device;
};

class Sysfs {
 public:
  explicit Sysfs(std::filesystem::path root = "/") : root_(std::move(root)) {}
  std::filesystem::path path(const std::string& below) const { return root_ / below; }

  std::filesystem::path pci(const std::string& bus_id) const { return path("sys/bus/pci/devices/" + bus_id); }
  std::vector<std::string> pci_devices() const;  // their addresses
  std::optional<PciPath> pci_path(const std::string& bus_id) const;
  // The PCI device of an entry in /sys/class (for a virtio device, the one behind it); nullopt for others such as USB ones.
  std::optional<std::string> pci_device_of(const std::filesystem::path& class_entry) const;
  int numa_of(const std::string& bus_id) const;           // -1 if unknown
  std::string class_of(const std::string& bus_id) const;  // "0x030200", or ""

  // The link of a device to the bridge above: the speed that both ends support, and the current one. An idle GPU lowers its
  // generation, but not the number of its lanes.
  struct PciLink {
    double gt_per_s = 0, gt_per_s_now = 0;  // 0: not known
    int width = 0, most_width = 0;          // current lanes, and supported ones
  };
  PciLink link_of(const std::string& bus_id, const std::string& bridge_above) const;

 private:
  std::filesystem::path root_;
};

}  // namespace plait::topology
