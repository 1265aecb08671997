// Finds settings of driver, kernel and container that decide whether GPUs reach each other's memory, and how fast.
#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/machine.h"
#include "topology/nvml.h"
#include "topology/sysfs.h"

namespace plait::topology {

// Covers NVML itself, GPUs cut into instances (MIG), how NICs reach GPU memory, fabric handles, and registry keys given to the
// module. Only on machines with GPUs, or if the driver is missing.
void add_driver_findings(const Sysfs& sysfs, const Nvml& nvml, const Graph& graph, Machine& machine);

// Covers the hypervisor if this is a virtual machine, the IOMMU, and namespaces that handles do not cross.
void add_kernel_findings(const Sysfs& sysfs, const Graph& graph, Machine& machine);

// A link of PCI Express above a GPU, NIC or switch.
struct LinkState {
  std::string label;  // "gpu0", "switch 0000:10:00.0"
  std::string gpu;    // its PCI address; "" if it is not a GPU
  Sysfs::PciLink link;
};

// Covers faults on PCI Express: links that run below what both ends can do, ACS on the ports above GPUs, and in virtual
// machines peer-to-peer transfers that the hypervisor has not approved. Anything that cannot be read without privileges is
// reported.
//
// ACS control: PCI Express Base Specification, Access Control Services capability, bits "P2P Request Redirect" and "P2P
// Completion Redirect". At a port of a switch they send traffic up to the root complex that the switch could turn round; at a
// root port they send traffic through the IOMMU that the root complex could pass on.
//
// Approval: NVIDIA's vendor-specific capability "P2P" in a GPU's configuration space, which a hypervisor adds (QEMU:
// x-nv-gpudirect-clique): GPUs with the same clique number may reach each other.
void add_pcie_findings(const Sysfs& sysfs, const Nvml& nvml, const Graph& graph, const std::vector<LinkState>& links,
                       Machine& machine);

}  // namespace plait::topology
