// The importers of topology files, one for each format, and what they share. topology/import.h detects the format.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import.h"

namespace plait::topology {

// Throws the ConfigError that says: this value in this line of this source is not what `rule` says. `line` is 0 if no line is
// to blame; `value` may be empty.
[[noreturn]] void refuse(const std::string& source, int line, std::string_view value, std::string_view rule);

// Finds the line of a text that a byte is in.
class TextLines {
 public:
  explicit TextLines(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') ends_.push_back(i);
    }
  }
  // Line numbers from 1. A newline belongs to the line that it ends.
  int at(std::size_t offset) const {
    return static_cast<int>(std::lower_bound(ends_.begin(), ends_.end(), offset) - ends_.begin()) + 1;
  }

 private:
  std::vector<std::size_t> ends_;
};

// Imports NCCL's and RCCL's topology files (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE), versions 1 and 2.
//
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

// Imports the text of `nvidia-smi topo -m`, as pasted.
//
// Accepts old and new labels (SOC is SYS, PSB is PIX), NIC columns, with tabs, spaces, both or the bars of a Markdown table,
// with or without columns of affinity (or one named NUMA) and legend; lines above the matrix and terminal colours are skipped.
// Cells that ran together (PIXNODE) are separated if there is one way to do it (topo_matrix.h). GPUs are those of
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
