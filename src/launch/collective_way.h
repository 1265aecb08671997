// What comm.exchanges and comm.reductions: auto stand for.
#pragma once

#include <optional>

#include "core/choices.h"
#include "core/config.h"
#include "core/device.h"
#include "topology/fabric.h"

namespace plait::launch {

// For CommConfig::collectives_here. Links where all GPUs of `fabric` are of one host and every two of them are joined by NVLink
// (what follows from it: parallel::choose_exchanges, choose_reductions). Nothing anywhere else, nor where the configuration
// says what both go by, or what links do.
std::optional<CollectiveWay> collective_way(const Config& config, topology::Fabric& fabric, DeviceKind kind);

// With collectives_here of this machine, for a job that is not planned. Ranks of an outside launcher each see some of it, and
// keep to the library.
Config with_collective_way(Config config);

}  // namespace plait::launch
