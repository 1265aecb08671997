// Writes a verification as one JSON document.
#pragma once

#include <nlohmann/json.hpp>

#include "verify/verify.h"

namespace plait::verify {

// {"reference": {"device", "models": [{"model", "parameters", "compute", "losses", "norms", "failure"}]},
//  "layouts": [{"model", "layout": {"pipeline", "data", "tensor"}, "name", "schedule", "virtual_stages", "zero",
//               "sequence_parallel", "recompute", "device", "max_loss_error", "max_norm_error", "max_grad_error",
//               "max_param_error", "max_weight_error", "of_bound": {"loss", "norm", "gradient", "parameter", "weight"},
//               "first_divergence": {"text", ...}, "failure", "passed", "seconds"}],
//  "refused": [{"model", "name", "reason"}],
//  "bounds": {model: {"steps": [{"loss", "norm", "gradient", "tensor", ...}], ...}}, "passed", "failed", "seconds"}
// `name` is a value for --layout. Errors and shares of bounds are null if a layout did not run to its end, and so is anything
// that does not apply; an error that is not finite is 1e300. If a serial run failed, its model has no losses, and the failure
// is that of all its layouts.
nlohmann::ordered_json to_json(const VerifyReport& report);

}  // namespace plait::verify
