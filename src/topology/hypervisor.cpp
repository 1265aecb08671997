#include "topology/hypervisor.h"

#include <string_view>

#include "core/message.h"

namespace plait::topology {
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
