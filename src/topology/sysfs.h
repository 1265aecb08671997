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

// The configuration space of a PCI device, from the kernel, and the capabilities that it lists.
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

// The hypervisor that this machine is a guest of.
struct Hypervisor {
  std::string name;     // "KVM/QEMU", "Amazon EC2 (Nitro)"; "" if the machine does not tell
  std::string product;  // name of the machine in its firmware (DMI): "QEMU Standard PC (Q35 + ICH9, 2009)"
  bool qemu = false;    // started with QEMU's options by its owner, not by a cloud
};

// Uses the processor's hypervisor flag and, where processors have no such flag (Arm), the machine's name in the firmware.
// nullopt on bare metal, including that of clouds.
std::optional<Hypervisor> hypervisor_of(const Sysfs& sysfs);

}  // namespace plait::topology
