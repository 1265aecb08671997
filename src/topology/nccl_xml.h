// Imports NCCL's and RCCL's topology files (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE), versions 1 and 2.
#pragma once

#include <string>
#include <string_view>

#include "topology/import.h"

namespace plait::topology {

// Elements and attributes mean what NCCL's reader (src/graph/topo.cc) takes them to mean: the NVSwitches of a file are one node
// and a GPU's lanes to them are added up; all NUMA nodes of a host are joined to each other; hosts are told apart by
// `host_hash`. Content that NCCL silently ignores (a GPU without a rank, a link to an unknown device) is a warning here, and
// kept if it is meaningful.
//
// A link to an all-ones or all-zero address goes to an NVSwitch that a virtual machine does not see. Links from a device to
// itself, or listed at one end only, are left out with a warning. PCIe and SMP bandwidths are nominal (nominal.h), because the
// rate that a device could negotiate says little about what reaches another GPU; NICs and C2C have the file's.
//
// Throws ConfigError with the line for anything else that NCCL would refuse, and for a file without GPUs.
Imported import_nccl_xml(std::string_view text, const std::string& name);

}  // namespace plait::topology
