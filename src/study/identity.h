// Identifies points across runs of a study, and across studies.
#pragma once

#include <string>

#include "config/config.h"

namespace plait::study {

// 32 hexadecimal digits: XXH3 (128 bits) of the configuration's YAML, the text of a schedule from a file, plait's commit, and
// the machine (train::Environment::machine). Equal digits mean equal points.
std::string point_id(const Config& config, const std::string& commit, const std::string& machine);

}  // namespace plait::study
