// Settings of driver, kernel and container that decide whether GPUs reach each other's memory, and how fast.
#pragma once

#include "topology/graph.h"
#include "topology/machine.h"
#include "topology/nvml.h"
#include "topology/sysfs.h"

namespace plait::topology {

// NVML itself, the module for GPUDirect RDMA where there are NICs, fabric handles, registry keys given to the module. Only on
// machines with GPUs, or where the driver is missing.
void add_driver_findings(const Sysfs& sysfs, const Nvml& nvml, const Graph& graph, Machine& machine);

// IOMMU, ACS on the switches above GPUs, whether this is a virtual machine, namespaces that handles do not cross. What cannot
// be read without privileges says so. ACS control: PCI Express Base Specification, Access Control Services capability, bits
// "P2P Request Redirect" and "P2P Completion Redirect", which send what a switch could turn round up to the root complex.
void add_kernel_findings(const Sysfs& sysfs, const Graph& graph, Machine& machine);

}  // namespace plait::topology
