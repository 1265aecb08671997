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

}  // namespace plait::launch
