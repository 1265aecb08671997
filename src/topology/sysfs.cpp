#include "topology/sysfs.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <string_view>

#include "core/device.h"
#include "core/message.h"

namespace plait::topology {
namespace {

namespace fs = std::filesystem;

// "pci0000:17"
bool is_pci_root(const std::string& name) {
  return name.starts_with("pci") && bus_id_from(name.substr(3) + ":00.0") == name.substr(3) + ":00.0";
}

double number_at_start(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

std::optional<std::string> read_bytes(const fs::path& file, std::size_t most) {
  std::error_code error;
  if (!fs::exists(file, error) || fs::is_directory(file, error)) return std::nullopt;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return std::nullopt;
  std::string text(most, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(most));
  // Some attributes open and then refuse to be read: the speed of a network interface that is down.
  if (stream.bad()) return std::nullopt;
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

std::optional<std::string> read_line(const fs::path& file) {
  std::optional<std::string> text = read_bytes(file, 4096);
  if (!text) return std::nullopt;
  text->resize(std::min(text->find('\n'), text->size()));
  const std::size_t last = text->find_last_not_of(" \t\r");
  text->resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

std::optional<std::int64_t> read_integer(const fs::path& file) {
  const std::optional<std::string> text = read_line(file);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [rest, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (status != std::errc() || rest != text->data() + text->size()) return std::nullopt;
  return value;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Sysfs::pci_devices() const {
  std::vector<std::string> devices = names_in(path("sys/bus/pci/devices"));
  std::erase_if(devices, [](const std::string& name) { return bus_id_from(name) != name; });
  return devices;
}

std::optional<PciPath> Sysfs::pci_path(const std::string& bus_id) const {
  std::error_code error;
  const fs::path real = fs::canonical(pci(bus_id), error);
  if (error) return std::nullopt;
  PciPath path;
  for (const fs::path& part : real) {
    const std::string name = part.string();
    if (is_pci_root(name)) {
      path.root = name;
      path.bridges.clear();
    } else if (!path.root.empty() && bus_id_from(name) == name) {
      path.bridges.push_back(name);
    }
  }
  if (path.bridges.empty() || path.bridges.back() != bus_id) return std::nullopt;
  path.bridges.pop_back();
  path.device = bus_id;
  return path;
}

std::optional<std::string> Sysfs::pci_device_of(const fs::path& class_entry) const {
  std::error_code error;
  fs::path device = fs::canonical(class_entry / "device", error);
  if (error) return std::nullopt;
  if (device.filename().string().starts_with("virtio")) device = device.parent_path();
  const std::string name = device.filename().string();
  return bus_id_from(name) == name ? std::optional(name) : std::nullopt;
}

int Sysfs::numa_of(const std::string& bus_id) const {
  const std::int64_t numa = read_integer(pci(bus_id) / "numa_node").value_or(-1);
  return numa >= 0 && numa < 1 << 16 ? static_cast<int>(numa) : -1;
}

std::string Sysfs::class_of(const std::string& bus_id) const { return read_line(pci(bus_id) / "class").value_or(""); }

Sysfs::PciLink Sysfs::link_of(const std::string& bus_id, const std::string& bridge_above) const {
  PciLink link;
  const auto narrow = [](auto& value, auto other) {
    if (other > 0) value = value > 0 ? std::min(value, other) : other;
  };
  for (const std::string& end : {bus_id, bridge_above}) {
    if (end.empty()) continue;
    narrow(link.gt_per_s, number_at_start(read_line(pci(end) / "max_link_speed").value_or("")));
    // 255 stands for "not known" in some virtual machines.
    const std::int64_t width = read_integer(pci(end) / "max_link_width").value_or(0);
    if (width <= 32) narrow(link.most_width, static_cast<int>(width));
  }
  const std::int64_t now = read_integer(pci(bus_id) / "current_link_width").value_or(0);
  link.width = now > 0 && now <= 32 ? std::min(static_cast<int>(now), link.most_width) : link.most_width;
  link.gt_per_s_now = number_at_start(read_line(pci(bus_id) / "current_link_speed").value_or(""));
  return link;
}

namespace {

constexpr std::size_t standard_bytes = 256, all_bytes = 4096;

}  // namespace

std::optional<PciConfig> PciConfig::read(const Sysfs& sysfs, const std::string& bus_id) {
  std::optional<std::string> bytes = read_bytes(sysfs.pci(bus_id) / "config", all_bytes);
  if (!bytes || bytes->size() < standard_bytes) return std::nullopt;
  return PciConfig(std::move(*bytes));
}

unsigned PciConfig::byte(std::size_t at) const {
  return at < bytes_.size() ? static_cast<unsigned>(static_cast<unsigned char>(bytes_[at])) : 0u;
}

std::vector<std::size_t> PciConfig::capabilities(unsigned id) const {
  constexpr std::size_t status = 0x06, list = 0x34, header_bytes = 0x40;
  constexpr unsigned has_list = 1u << 4;
  std::vector<std::size_t> found;
  if ((byte(status) & has_list) == 0) return found;
  std::set<std::size_t> seen;
  for (std::size_t at = byte(list) & ~3u; at >= header_bytes && seen.insert(at).second; at = byte(at + 1) & ~3u) {
    if (byte(at) == id) found.push_back(at);
  }
  return found;
}

std::optional<std::size_t> PciConfig::extended_capability(unsigned id) const {
  std::set<std::size_t> seen;
  for (std::size_t at = standard_bytes; at >= standard_bytes && seen.insert(at).second;) {
    if (word(at) == id) return at;
    at = byte(at + 2) >> 4 | byte(at + 3) << 4;
  }
  return std::nullopt;
}

namespace {

struct KnownGuest {
  std::string_view vendor, product;  // prefixes
  std::string_view name;
  bool qemu = false;
};

// The first match counts.
constexpr KnownGuest known_guests[] = {{"QEMU", "", "KVM/QEMU", true},
                                       {"Red Hat", "", "KVM/QEMU", true},
                                       {"oVirt", "", "KVM/QEMU", true},
                                       {"OpenStack", "", "OpenStack", true},
                                       {"Nutanix", "AHV", "Nutanix AHV"},
                                       {"VMware", "", "VMware"},
                                       {"Microsoft Corporation", "Virtual Machine", "Hyper-V"},
                                       {"Xen", "", "Xen"},
                                       {"Amazon EC2", "", "Amazon EC2 (Nitro)"},
                                       {"Google", "Google Compute Engine", "Google Compute Engine"},
                                       {"Alibaba Cloud", "", "Alibaba Cloud"},
                                       {"Tencent Cloud", "", "Tencent Cloud"},
                                       {"Huawei", "OpenStack", "Huawei Cloud"},
                                       {"DigitalOcean", "", "DigitalOcean"},
                                       {"Cloud Hypervisor", "", "Cloud Hypervisor"},
                                       {"innotek GmbH", "VirtualBox", "VirtualBox"},
                                       {"Parallels", "", "Parallels"},
                                       {"BHYVE", "", "bhyve"},
                                       {"", "KVM", "KVM/QEMU", true}};

constexpr std::string_view azure_asset_tag = "7783-7084-3265-9085-8269-3286-77";

std::string dmi(const Sysfs& sysfs, const char* what) {
  return printable(read_line(sysfs.path("sys/class/dmi/id") / what).value_or(""), 80);
}

// The answer in the processors' flags; nullopt if there are no flags of that kind.
std::optional<bool> flag_of_processors(const Sysfs& sysfs) {
  const std::string text = read_bytes(sysfs.path("proc/cpuinfo"), std::size_t{1} << 14).value_or("");
  const std::size_t flags = text.find("\nflags");
  if (flags == std::string::npos) return std::nullopt;
  const std::string line = text.substr(flags + 1, text.find('\n', flags + 1) - flags - 1) + " ";
  return line.find(" hypervisor ") != std::string::npos;
}

}  // namespace

std::optional<Hypervisor> hypervisor_of(const Sysfs& sysfs) {
  const std::optional<bool> flag = flag_of_processors(sysfs);
  if (flag == false) return std::nullopt;
  const std::string vendor = dmi(sysfs, "sys_vendor"), product = dmi(sysfs, "product_name");
  Hypervisor found;
  found.product = vendor + (vendor.empty() || product.empty() ? "" : " ") + product;
  for (const KnownGuest& guest : known_guests) {
    if (!vendor.starts_with(guest.vendor) || !product.starts_with(guest.product)) continue;
    found.name = guest.name;
    found.qemu = guest.qemu;
    break;
  }
  if (found.name == "Hyper-V" && dmi(sysfs, "chassis_asset_tag") == azure_asset_tag) found.name = "Microsoft Azure (Hyper-V)";
  if (found.name == "Xen" && dmi(sysfs, "bios_version").find("amazon") != std::string::npos) found.name = "Amazon EC2 (Xen)";
  if (found.name.empty() && read_line(sysfs.path("sys/hypervisor/type")) == "xen") found.name = "Xen";
  const bool metal = product.ends_with("metal") || product.find(".metal-") != std::string::npos;
  if (!flag && (found.name.empty() || metal)) return std::nullopt;
  return found;
}

}  // namespace plait::topology
