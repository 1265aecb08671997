// What a study found, in three sentences: the best layout, what limits it, what would change that.
#pragma once

#include <string>
#include <vector>

#include "study/report/findings.h"

namespace plait::study {

// Always three, all from the data. The best layout is the one of the most ranks that is fastest per device; its limit the
// account of its ledger that takes most after compute, or compute where that leaves little; what would change it, the first of:
// a layout that was predicted to be faster but does not fit or was not measured; the measured layout that loses least to that
// account; what the step would be without it.
std::vector<std::string> sentences_of(const Findings& findings);

}  // namespace plait::study
