// The kernel's view of PCI devices, processors and their memory, read from sysfs. By hand rather than by hwloc: hwloc tells the
// speed at which a link runs at the moment (an idle GPU's is that of Gen1) and not the one that it can, and nothing of ACS,
// IOMMU groups and InfiniBand ports.
//
// Everything takes the folder that stands for "/", so that tests can use a tree of their own. What is missing, unreadable or
// makes no sense is nullopt, never an error: containers and virtual machines leave much out.
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
// At most `most` bytes.
std::optional<std::string> read_bytes(const std::filesystem::path& file, std::size_t most);
std::vector<std::string> names_in(const std::filesystem::path& folder);  // sorted

// Where a device is in the PCIe tree.
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
  // The PCI device that something in /sys/class is (or, of a virtio device, is behind); nothing for others, USB ones say.
  std::optional<std::string> pci_device_of(const std::filesystem::path& class_entry) const;
  int numa_of(const std::string& bus_id) const;           // -1 where it is not told
  std::string class_of(const std::string& bus_id) const;  // "0x030200", or ""

  // What the device's link to the bridge above can do by what both ends can, and how it runs now. An idle GPU lowers its
  // generation, but not the number of its lanes.
  struct PciLink {
    double gt_per_s = 0, gt_per_s_now = 0;  // 0: not known
    int width = 0, most_width = 0;          // lanes that run, and that could
  };
  PciLink link_of(const std::string& bus_id, const std::string& bridge_above) const;

 private:
  std::filesystem::path root_;
};

}  // namespace plait::topology
