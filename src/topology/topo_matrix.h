// Imports the text of `nvidia-smi topo -m`, as pasted.
#pragma once

#include <string>
#include <string_view>

#include "topology/import.h"

namespace plait::topology {

// Accepts old and new labels (SOC is SYS, PSB is PIX), NIC columns, with tabs, spaces, both or the bars of a Markdown table,
// with or without columns of affinity (or one named NUMA) and legend; lines above the matrix and terminal colours are skipped.
// Cells that ran together (PIXNODE) are separated if there is one way to do it (topology/topo_matrix_row.h). GPUs are those of
// one host, their numbers the N of GPUN.
//
// The text names the way between two devices and nothing else, so PCIe switches, host bridges and NUMA nodes are those that the
// labels imply. Lanes count as nominal lanes of V100 to H200. If all GPUs of a group have the same number of lanes to each
// other and more in sum than any GPU has, these are the lanes to an NVSwitch. Cells that contradict each other are a warning: a
// link that only one end lists does not count; of two PCIe paths the longer one counts.
//
// Throws ConfigError with the line for a text without a matrix, missing rows or columns, unknown labels, and rows with two
// readings, which it names.
Imported import_topo_matrix(std::string_view text, const std::string& name);

}  // namespace plait::topology
