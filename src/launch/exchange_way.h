// What comm.exchanges: auto stands for.
#pragma once

#include <optional>

#include "core/choices.h"
#include "core/config.h"
#include "core/device.h"
#include "topology/fabric.h"

namespace plait::launch {

// For CommConfig::exchanges_here. Links where all GPUs of `fabric` are of one host and every two of them are joined by NVLink:
// there a step with tensor 2 was measured as 6 % shorter than with the library (docs/overlap.md; of larger groups
// parallel::choose_exchanges). Nothing anywhere else, nor
// where the configuration says what exchanges or links go by.
std::optional<CollectiveWay> exchange_way(const Config& config, topology::Fabric& fabric, DeviceKind kind);

// With exchanges_here of this machine, for a job that is not planned. Ranks of an outside launcher each see some of it, and
// keep to the library.
Config with_exchange_way(Config config);

}  // namespace plait::launch
