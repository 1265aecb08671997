// Reads topologies from files: detects the format, and warns of oddities.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/graph.h"
#include "topology/machine.h"

namespace plait::topology {

// Something in a file that cannot be true or that its usual reader ignores, with its interpretation.
struct ImportWarning {
  int line = 0;  // from 1
  std::string message;
  friend bool operator==(const ImportWarning&, const ImportWarning&) = default;
};

struct Imported {
  std::string format;  // "nccl-xml", "topo-m", "plait-json"
  Graph graph;         // valid
  Machine machine;     // from files that `plait topo --json` wrote
  std::vector<ImportWarning> warnings;
};

inline constexpr std::size_t max_topology_bytes = std::size_t{256} << 20;

// `no` if a topology may have no GPU, such as that of a machine whose ranks run on CPUs.
enum class GpusNeeded { yes, no };

// Detects the format by content, not by the file's name: XML of NCCL or RCCL (NCCL_TOPO_DUMP_FILE), our own JSON, or the text
// of `nvidia-smi topo -m`. Throws ConfigError, with the line, for an unknown format or a broken topology; `name` is what
// messages call the source. GPUs of a host count from 0 without gaps, in the order of their numbers in the file; a warning says
// so if that changes them. Only our JSON may be without GPUs, if `gpus` allows it.
Imported import_topology(const std::string& file, GpusNeeded gpus = GpusNeeded::yes);
Imported import_topology(std::string_view text, const std::string& name, GpusNeeded gpus = GpusNeeded::yes);

}  // namespace plait::topology
