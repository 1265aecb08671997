// Which hypervisor this machine is a guest of.
#pragma once

#include <optional>
#include <string>

#include "topology/sysfs.h"

namespace plait::topology {

struct Hypervisor {
  std::string name;     // "KVM/QEMU", "Amazon EC2 (Nitro)"; "" where the machine does not tell
  std::string product;  // as its firmware (DMI) calls the machine: "QEMU Standard PC (Q35 + ICH9, 2009)"
  bool qemu = false;    // whoever runs it starts it with QEMU's options, and is no cloud
};

// By the processor's flag that says that there is one and, where processors have no such flag (Arm), by the name that the
// firmware gives the machine. Nothing on bare metal, that of clouds too.
std::optional<Hypervisor> hypervisor_of(const Sysfs& sysfs);

}  // namespace plait::topology
