// Resolves comm.exchanges and comm.reductions: auto.
#pragma once

#include <optional>

#include "config/config.h"
#include "core/choices.h"
#include "core/device.h"
#include "topology/fabric.h"

namespace plait::site {

// The value for CommConfig::collectives_here. Links if all GPUs of `fabric` are on one host and every two of them are joined by
// NVLink (for the consequences see parallel::choose_exchanges and choose_reductions). nullopt otherwise, and if the
// configuration sets both ways, or the links' transports.
std::optional<CollectiveWay> collective_way(const Config& config, topology::Fabric& fabric, DeviceKind kind);

}  // namespace plait::site
