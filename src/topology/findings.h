// Settings of driver, kernel and container that decide whether GPUs reach each other's memory, and how fast.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/machine.h"
#include "topology/nvml.h"
#include "topology/sysfs.h"

namespace plait::topology {

// NVML itself, GPUs cut into instances (MIG), by what NICs reach GPU memory where there are NICs, fabric handles, registry keys
// given to the module. Only on machines with GPUs, or where the driver is missing.
void add_driver_findings(const Sysfs& sysfs, const Nvml& nvml, const Graph& graph, Machine& machine);

// The virtual machine that this is, IOMMU, namespaces that handles do not cross.
void add_kernel_findings(const Sysfs& sysfs, const Graph& graph, Machine& machine);

// A link of PCI Express above a GPU, NIC or switch.
struct LinkState {
  std::string label;  // "gpu0", "switch 0000:10:00.0"
  std::string gpu;    // its PCI address; "" for what is no GPU
  Sysfs::PciLink link;
};

// What can be wrong on PCI Express: links that run below what both ends can do, ACS on the ports above GPUs, and in virtual
// machines peer-to-peer transfers that the hypervisor has not approved. What cannot be read without privileges says so.
//
// ACS control: PCI Express Base Specification, Access Control Services capability, bits "P2P Request Redirect" and "P2P
// Completion Redirect". At a port of a switch they send up to the root complex what the switch could turn round; at a root port
// they send through the IOMMU what the root complex could pass on.
//
// Approval: NVIDIA's vendor-specific capability "P2P" in a GPU's configuration space, which a hypervisor adds (QEMU:
// x-nv-gpudirect-clique): GPUs with the same clique number may reach each other.
void add_pcie_findings(const Sysfs& sysfs, const Nvml& nvml, const Graph& graph, const std::vector<LinkState>& links,
                       Machine& machine);

}  // namespace plait::topology
