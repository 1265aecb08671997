// Finds out which hypervisor this machine is a guest of.
#pragma once

#include <optional>
#include <string>

#include "topology/sysfs.h"

namespace plait::topology {

struct Hypervisor {
  std::string name;     // "KVM/QEMU", "Amazon EC2 (Nitro)"; "" if the machine does not tell
  std::string product;  // name of the machine in its firmware (DMI): "QEMU Standard PC (Q35 + ICH9, 2009)"
  bool qemu = false;    // started with QEMU's options by its owner, not by a cloud
};

// Uses the processor's hypervisor flag and, where processors have no such flag (Arm), the machine's name in the firmware.
// nullopt on bare metal, including that of clouds.
std::optional<Hypervisor> hypervisor_of(const Sysfs& sysfs);

}  // namespace plait::topology
