// NCCL's and RCCL's topology files (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE), versions 1 and 2.
#pragma once

#include <string>
#include <string_view>

#include "topology/import.h"

namespace plait::topology {

// The meaning of elements and attributes is that of NCCL's reader (src/graph/topo.cc): the NVSwitches of a file are one node
// and a GPU's lanes to them are added up; all NUMA nodes of a host are joined to each other; hosts are told apart by
// `host_hash`. What NCCL passes over in silence (a GPU without a rank, a link to an unknown device) is a warning here, and kept
// where it means something.
//
// A link to an all-ones or all-zero address is one to an NVSwitch that a virtual machine does not see. Links to oneself or
// listed at one end only are left out with a warning. PCIe and SMP bandwidths are nominal (nominal.h): what a device could
// negotiate says little about what reaches another GPU; NICs and C2C have the file's.
//
// Throws ConfigError with the line for anything else that NCCL would refuse, and for a file without GPUs.
Imported import_nccl_xml(std::string_view text, const std::string& name);

}  // namespace plait::topology
